// What: Picture, lines and words on a white ground, written as PNG; the frame and colours that our charts share.
// Owner: whoever draws.
// Thread: one.
// Invariant: what lies outside is not drawn; the file is a whole PNG or isn't written.
// Digits and letters are drawn from a 5x7 raster of our own: a picture needs no font to be found.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace levada::bench {

inline constexpr int kWidth = 900, kHeight = 520, kLeft = 70, kRight = 110, kTop = 40, kBottom = 50;

struct Color {
  std::uint8_t red, green, blue;
};
inline constexpr Color kInk{40, 40, 40}, kGrid{220, 220, 220};
inline constexpr std::array<Color, 6> kCurves{
    {{31, 119, 180}, {214, 96, 0}, {44, 130, 44}, {160, 40, 160}, {120, 80, 40}, {90, 90, 90}}};

class Picture {
 public:
  Picture();

  void dot(int x, int y, Color color);
  void line(double x0, double y0, double x1, double y1, Color color, int thick = 1);
  // Lower-case letters, digits and . % - /; anything else leaves a gap.
  void text(int x, int y, std::string_view words, Color color);
  // kUnavailable naming the file if it can't be written.
  Status write(const std::string& file) const;

 private:
  std::vector<std::uint8_t> pixels_;
};

}  // namespace levada::bench
