// What: Bf16, the upper half of a float32, with the one rounding we use: to nearest, ties to even.
// Owner: value type.
// Thread: any.
// Invariant: widening is exact; a NaN stays a NaN; a finite float may round to infinity. The vector kernels widen on
// their own; narrowing happens here only.
#pragma once

#include <cstdint>

namespace levada::kernels {

struct Bf16 {
  std::uint16_t bits;
};

inline float to_float(Bf16 x) { return __builtin_bit_cast(float, std::uint32_t{x.bits} << 16); }

inline Bf16 to_bf16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace levada::kernels
