// What: what all row kernels share: values as float32, e^x, the largest of a row, sums over rows in a fixed order.
// Owner: rows_impl.h, which puts them into one table per instruction set.
// Thread: see rows.h.
// Invariant: arithmetic is float32; a sum's order depends on its length alone.
// LEVADA_ROWS names the namespace: see rows_impl.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "trainkernels/rows.h"

namespace levada::trainkernels::LEVADA_ROWS {

// Elements below which waking the team costs more than it saves.
constexpr std::int64_t kGrain = 1 << 15;

inline float load(float x) { return x; }
inline float load(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
inline void store(float& to, float x) { to = x; }
// To nearest even. A NaN could round to infinity, so it keeps a quiet bit instead.
inline void store(Bf16& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}
template <class T>
inline float rounded(float x) {
  T stored;
  store(stored, x);
  return load(stored);
}

// e^x to about one ulp for x <= 88, 0 below -87.
inline float exp_of(float x) {
  const float clamped = x < -87.f ? -87.f : (x > 88.f ? 88.f : x);
  const float n = std::rint(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const std::int32_t exponent = static_cast<std::int32_t>(n) << 23;
  const float scaled = std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + exponent);
  return x < -87.f ? 0.f : scaled;
}

template <class T>
inline float largest(const T* x, std::int64_t width) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (std::int64_t i = 0; i < width; ++i) top = load(x[i]) > top ? load(x[i]) : top;
  return top;
}

// Calls body(begin, end, partial) for a fixed partition of the rows; partials [width] are added to out in order.
template <class Body>
void reduce_rows(std::int64_t rows, std::int64_t width, float* out, Body body) {
  constexpr std::int64_t kParts = 16;
  std::vector<float> partials(static_cast<std::size_t>(kParts * width), 0.f);
#pragma omp parallel for schedule(static) if (rows * width > kGrain)
  for (std::int64_t part = 0; part < kParts; ++part) {
    body(rows * part / kParts, rows * (part + 1) / kParts, partials.data() + part * width);
  }
  for (std::int64_t part = 0; part < kParts; ++part) {
    for (std::int64_t i = 0; i < width; ++i) out[i] += partials[static_cast<std::size_t>(part * width + i)];
  }
}

}  // namespace levada::trainkernels::LEVADA_ROWS
