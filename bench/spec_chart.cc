// The chart of `levada bench spec --plot`: left the speedup over plain decoding by batch size, right the share of blocks
// that keep their n-th draft, for one request.
#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "bench/picture.h"
#include "bench/spec_bench.h"

namespace levada::bench {
namespace {

// x -> y, by the name of the curve.
using Curves = std::map<std::string, std::map<int, double>>;

// "ngram_b4_speedup" -> "ngram", 4; false for other names. `what`: behind the batch size.
bool split(std::string_view name, std::string& way, int& batch, std::string_view& what) {
  const std::size_t at = name.rfind("_b");
  if (at == std::string_view::npos) return false;
  const std::size_t end = std::min(name.find('_', at + 1), name.size());
  way = std::string(name.substr(0, at));
  std::replace(way.begin(), way.end(), '_', '-');
  batch = std::atoi(std::string(name.substr(at + 2, end - at - 2)).c_str());
  what = name.substr(end);
  return batch > 0;
}

struct Panel {
  int left, right;
  double most_x, most_y, step_y;
  bool powers;  // x in octaves

  double x(int value) const {
    const double share = powers ? std::log2(value) / std::log2(most_x) : (value - 1) / (most_x - 1);
    return left + share * (right - left);
  }
  double y(double value) const {
    return kHeight - kBottom - std::clamp(value / most_y, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }
};

std::string printed(double value) {
  const int tenths = static_cast<int>(std::lround(10 * value));
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

void draw(Picture& picture, const Panel& panel, const Curves& curves, const std::map<std::string, Color>& colors,
          std::string_view below) {
  for (double value = 0; value <= panel.most_y + 1e-9; value += panel.step_y) {
    picture.line(panel.left, panel.y(value), panel.right, panel.y(value), kGrid);
    picture.text(panel.left - 46, static_cast<int>(panel.y(value)) - 7, printed(value), kInk);
  }
  std::map<int, bool> ticks;
  for (const auto& [name, points] : curves)
    for (const auto& [x, y] : points) ticks[x] = true;
  for (const auto& [x, present] : ticks)
    picture.text(static_cast<int>(panel.x(x)) - 6, kHeight - kBottom + 10, std::to_string(x), kInk);
  picture.text(panel.left, kHeight - 22, below, kInk);
  for (const auto& [name, points] : curves) {
    const Color color = colors.at(name);
    for (auto point = points.begin(); point != points.end(); ++point) {
      const double x = panel.x(point->first), y = panel.y(point->second);
      picture.line(x - 3, y - 1, x + 3, y - 1, color, 4);
      const auto next = std::next(point);
      if (next != points.end()) picture.line(x, y, panel.x(next->first), panel.y(next->second), color, 2);
    }
  }
}

}  // namespace

Status write_spec_chart(const std::string& file, const std::vector<Case>& cases) {
  Curves speedups, accepted;
  double most_x = 2, most_y = 1.5, most_place = 2;
  for (const Case& item : cases) {
    std::string way;
    int batch = 0;
    std::string_view what;
    if (!split(item.name, way, batch, what)) continue;
    if (what == "_speedup") {
      speedups[way][batch] = item.median;
      most_x = std::max(most_x, static_cast<double>(batch));
      most_y = std::max(most_y, item.median);
    } else if (batch == 1 && what.starts_with("_accepted_")) {
      const int place = std::atoi(std::string(what.substr(10)).c_str());
      accepted[way][place] = item.median;
      most_place = std::max(most_place, static_cast<double>(place));
    }
  }
  Picture picture;
  picture.text(kLeft, 12, "speculative decoding / plain decoding in the same run", kInk);
  std::map<std::string, Color> colors;
  for (const auto& [name, points] : speedups) {
    const Color color = kCurves[colors.size() % kCurves.size()];
    picture.text(kWidth - 190, kTop + 10 + static_cast<int>(colors.size()) * 22, name, color);
    colors[name] = color;
  }
  for (const auto& [name, points] : accepted) colors.emplace(name, kInk);
  const double top = std::ceil(most_y * 2) / 2;
  draw(picture, {kLeft, 340, most_x, top, top > 4 ? 1.0 : 0.5, true}, speedups, colors, "speedup / requests at once");
  draw(picture, {420, 690, most_place, 1, 0.2, false}, accepted, colors, "share accepted / place");
  return picture.write(file);
}

}  // namespace levada::bench
