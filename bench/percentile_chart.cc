#include "bench/percentile_chart.h"

#include <algorithm>
#include <cmath>

#include "bench/picture.h"

namespace levada::bench {

namespace {

// Milliseconds to a height, in decades from `low` to `high`.
struct Scale {
  int low = 0, high = 1;
  double y(double ms) const {
    const double share = (std::log10(std::max(ms, 1e-9)) - low) / (high - low);
    return kHeight - kBottom - std::clamp(share, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }
};

Scale scale_of(const std::map<std::string, std::vector<double>>& series) {
  double least = 1e9, most = 0;
  for (const auto& [name, samples] : series) {
    if (samples.empty()) continue;
    least = std::min(least, samples.front());
    most = std::max(most, samples.back());
  }
  if (most <= 0) return {};
  Scale scale{static_cast<int>(std::floor(std::log10(std::max(least, 1e-3)))),
              static_cast<int>(std::ceil(std::log10(std::max(most, 1e-3))))};
  scale.high = std::max(scale.high, scale.low + 1);
  return scale;
}

double x_of(double percent) { return kLeft + percent / 100 * (kWidth - kLeft - kRight); }

std::string decade(int exponent) {
  return exponent >= 0 ? "1" + std::string(static_cast<std::size_t>(exponent), '0')
                       : "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + "1";
}

void draw_axes(Picture& picture, const Scale& scale) {
  for (int exponent = scale.low; exponent <= scale.high; ++exponent) {
    const double y = scale.y(std::pow(10.0, exponent));
    picture.line(kLeft, y, kWidth - kRight, y, kGrid);
    picture.text(4, static_cast<int>(y) - 7, decade(exponent), kInk);
  }
  for (const int percent : {0, 25, 50, 75, 90, 99}) {
    const double x = x_of(percent);
    picture.line(x, kTop, x, kHeight - kBottom, kGrid);
    picture.text(static_cast<int>(x) - 12, kHeight - kBottom + 10, std::to_string(percent), kInk);
  }
  picture.text(kLeft, kHeight - 22, "percent of samples below; ms upwards", kInk);
}

}  // namespace

Status write_percentile_chart(const std::string& file, const std::string& title,
                              const std::map<std::string, std::vector<double>>& series) {
  Picture picture;
  const Scale scale = scale_of(series);
  draw_axes(picture, scale);
  picture.text(kLeft, 12, title, kInk);
  std::size_t number = 0;
  for (const auto& [name, samples] : series) {
    const Color color = kCurves[number % kCurves.size()];
    picture.text(kWidth - kRight + 12, kTop + 10 + static_cast<int>(number++) * 22, name, color);
    for (std::size_t i = 1; i < samples.size(); ++i) {
      const double last = static_cast<double>(samples.size() - 1);
      picture.line(x_of(100 * static_cast<double>(i - 1) / last), scale.y(samples[i - 1]),
                   x_of(100 * static_cast<double>(i) / last), scale.y(samples[i]), color, 2);
    }
  }
  return picture.write(file);
}

}  // namespace levada::bench
