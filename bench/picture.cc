#include "bench/picture.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace levada::bench {
namespace {

// Seven rows of five pixels, the leftmost in bit 4.
struct Glyph {
  char letter;
  std::array<std::uint8_t, 7> rows;
};
constexpr Glyph kGlyphs[] = {
    {'0', {14, 17, 19, 21, 25, 17, 14}}, {'1', {4, 12, 4, 4, 4, 4, 14}},    {'2', {14, 17, 1, 2, 4, 8, 31}},
    {'3', {31, 2, 4, 2, 1, 17, 14}},     {'4', {2, 6, 10, 18, 31, 2, 2}},   {'5', {31, 16, 30, 1, 1, 17, 14}},
    {'6', {6, 8, 16, 30, 17, 17, 14}},   {'7', {31, 1, 2, 4, 8, 8, 8}},     {'8', {14, 17, 17, 14, 17, 17, 14}},
    {'9', {14, 17, 17, 15, 1, 2, 12}},   {'.', {0, 0, 0, 0, 0, 12, 12}},    {'%', {24, 25, 2, 4, 8, 19, 3}},
    {'a', {0, 0, 14, 1, 15, 17, 15}},    {'c', {0, 0, 14, 16, 16, 17, 14}}, {'d', {1, 1, 13, 19, 17, 17, 15}},
    {'e', {0, 0, 14, 17, 31, 16, 14}},   {'f', {6, 9, 8, 28, 8, 8, 8}},     {'g', {0, 15, 17, 17, 15, 1, 14}},
    {'h', {16, 16, 22, 25, 17, 17, 17}}, {'i', {4, 0, 12, 4, 4, 4, 14}},    {'k', {16, 16, 18, 20, 24, 20, 18}},
    {'l', {12, 4, 4, 4, 4, 4, 14}},      {'m', {0, 0, 26, 21, 21, 17, 17}}, {'n', {0, 0, 22, 25, 17, 17, 17}},
    {'o', {0, 0, 14, 17, 17, 17, 14}},   {'p', {0, 0, 30, 17, 30, 16, 16}}, {'q', {0, 0, 13, 19, 15, 1, 1}},
    {'r', {0, 0, 22, 25, 16, 16, 16}},   {'s', {0, 0, 14, 16, 14, 1, 30}},  {'t', {8, 8, 28, 8, 8, 9, 6}},
    {'u', {0, 0, 17, 17, 17, 19, 13}},   {'v', {0, 0, 17, 17, 17, 10, 4}},  {'x', {0, 0, 17, 10, 4, 10, 17}},
    {'y', {0, 0, 17, 17, 15, 1, 14}},    {'-', {0, 0, 0, 31, 0, 0, 0}},     {'/', {0, 1, 2, 4, 8, 16, 0}},
    {'b', {16, 16, 22, 25, 17, 17, 30}}, {'w', {0, 0, 17, 17, 21, 21, 10}}, {'z', {0, 0, 31, 2, 4, 8, 31}},
    {'j', {2, 0, 6, 2, 2, 18, 12}},
};

}  // namespace

Picture::Picture() : pixels_(static_cast<std::size_t>(kWidth) * kHeight * 3, 255) {}

void Picture::dot(int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= kWidth || y >= kHeight) return;
  std::uint8_t* pixel = &pixels_[(static_cast<std::size_t>(y) * kWidth + static_cast<std::size_t>(x)) * 3];
  pixel[0] = color.red, pixel[1] = color.green, pixel[2] = color.blue;
}

void Picture::line(double x0, double y0, double x1, double y1, Color color, int thick) {
  const int steps = static_cast<int>(std::max({std::fabs(x1 - x0), std::fabs(y1 - y0), 1.0}));
  for (int i = 0; i <= steps; ++i) {
    const double share = static_cast<double>(i) / steps;
    const int x = static_cast<int>(std::lround(x0 + share * (x1 - x0)));
    const int y = static_cast<int>(std::lround(y0 + share * (y1 - y0)));
    for (int dy = 0; dy < thick; ++dy) dot(x, y + dy, color);
  }
}

void Picture::text(int x, int y, std::string_view words, Color color) {
  constexpr int kScale = 2;
  for (const char letter : words) {
    const auto* glyph =
        std::find_if(std::begin(kGlyphs), std::end(kGlyphs), [&](const Glyph& g) { return g.letter == letter; });
    for (int pixel = 0; glyph != std::end(kGlyphs) && pixel < 35 * kScale * kScale; ++pixel) {
      const int row = pixel / (5 * kScale), column = pixel % (5 * kScale);
      const std::uint8_t bits = glyph->rows[static_cast<std::size_t>(row / kScale)];
      if ((bits >> (4 - column / kScale) & 1) != 0) dot(x + column, y + row, color);
    }
    x += 6 * kScale;
  }
}

Status Picture::write(const std::string& file) const {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = kWidth;
  image.height = kHeight;
  image.format = PNG_FORMAT_RGB;
  if (png_image_write_to_file(&image, file.c_str(), 0, pixels_.data(), 0, nullptr) != 0) return {};
  return unavailable(file + ": " + image.message);
}

}  // namespace levada::bench
