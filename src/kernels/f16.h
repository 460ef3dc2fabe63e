// What: F16, an IEEE half as files store it, and its float32.
// Owner: value type.
// Thread: any.
// Invariant: widening is exact, subnormals included; a NaN stays a NaN. Narrowing is for tests and converters, which have
// `_Float16`; the vector kernels widen on their own.
#pragma once

#include <cstdint>

namespace levada::kernels {

struct F16 {
  std::uint16_t bits;
};

inline float to_float(F16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = x.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return __builtin_bit_cast(float, sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // The exponent's bias differs by 112; a subnormal is its bits times 2^-24.
  const float value = magnitude < 0x400u ? static_cast<float>(magnitude) * 0x1p-24f
                                         : __builtin_bit_cast(float, (magnitude << 13) + (112u << 23));
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, value) | sign);
}

}  // namespace levada::kernels
