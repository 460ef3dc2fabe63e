// What: the dot-product tile under linear and attention: R rows of x with four rows of w.
// Owner: none.
// Thread: any.
// Invariant: lane l of an output's sum takes k = l, l + width, l + 2 width, … in this order, then lanes are added as
// Vec::sum4 says. R, the type that carries w and the neighbours in the tile never change that. Included once by each
// avx*_table.cc, which supplies V.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/table.h"

namespace levada::kernels {
namespace {

template <class W>
struct FourRows {
  const W* row[4];
};

// Rows n, n + 1, n + 2, n + 3 of w; those from `valid` on repeat the last valid one, so they may be read.
template <class W>
[[gnu::always_inline]] inline FourRows<W> four_rows(const W* w, std::int64_t stride, std::int64_t valid) {
  FourRows<W> rows;
  for (std::int64_t i = 0; i < 4; ++i) rows.row[i] = w + stride * (i < valid ? i : valid - 1);
  return rows;
}

// sums[r] gets the four dot products of row r. The kFetch rows of weights from `fetch` on will be wanted soon: they are
// brought to the second-level cache, which has more lines on the way at a time than the first: twice as fast as into that
// one on a Zen 4.
template <class V, int R, class W, int kFetch>
[[gnu::always_inline]] inline void dot_tile(const float* x, std::int64_t x_stride, const FourRows<W>& w, std::int64_t k,
                                            const W* fetch, std::int64_t fetch_stride, __m128 (&sums)[R]) {
  V acc[R][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) acc[r][n] = V::zero();
  }
  const auto step = [&](auto load_x, auto load_w) __attribute__((always_inline)) {
    V wv[4];
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) wv[n] = load_w(w.row[n]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V xv = load_x(x + r * x_stride);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) acc[r][n] = V::fma(xv, wv[n], acc[r][n]);
    }
  };
  std::int64_t i = 0;
  for (; i + V::kWidth <= k; i += V::kWidth) {
#pragma GCC unroll 4
    for (int n = 0; n < kFetch; ++n) __builtin_prefetch(fetch + n * fetch_stride + i, 0, 2);
    const auto load = [i](const auto* p) __attribute__((always_inline)) { return V::load(p + i); };
    step(load, load);
  }
  if (i < k) {
    const int rest = static_cast<int>(k - i);
    const auto load = [ i, rest ](const auto* p) __attribute__((always_inline)) { return V::load_n(p + i, rest); };
    step(load, load);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = V::sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
}

[[gnu::always_inline]] inline void store4(float* out, __m128 sums, std::int64_t valid, bool accumulate) {
  if (valid >= 4) {
    _mm_storeu_ps(out, accumulate ? _mm_add_ps(_mm_loadu_ps(out), sums) : sums);
    return;
  }
  alignas(16) float four[4];
  _mm_store_ps(four, sums);
  for (std::int64_t i = 0; i < valid; ++i) out[i] = accumulate ? out[i] + four[i] : four[i];
}

// Calls visit.template operator()<R>(row) for a tile of `rows` = R rows, 1 <= R <= kMax.
template <int kMax, class Visit>
void visit_tile(std::int64_t row, std::int64_t rows, const Visit& visit) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return visit_tile<kMax - 1>(row, rows, visit);
  }
  visit.template operator()<kMax>(row);
}

// Covers [0, rows) with tiles of at most kMax rows; the last two share what is left evenly.
template <int kMax, class Visit>
void for_row_tiles(std::int64_t rows, const Visit& visit) {
  std::int64_t r = 0;
  for (; rows - r >= 2 * kMax; r += kMax) visit.template operator()<kMax>(r);
  if (rows - r > kMax) {
    const std::int64_t half = (rows - r + 1) / 2;
    visit_tile<kMax>(r, half, visit);
    r += half;
  }
  if (rows > r) visit_tile<kMax>(r, rows - r, visit);
}

}  // namespace
}  // namespace levada::kernels
