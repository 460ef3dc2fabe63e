// What: linear for one instruction set. Few rows: weights stream from memory once and are widened in the tile. Many
// rows: four weight rows at a time are widened into the first-level cache and meet a block of rows there.
// Owner: none. Thread: any, on disjoint columns.
// Invariant: see dot_impl.h; both ways give the same bits.
// Included once by each avx*_table.cc, which supplies V.
#pragma once

#include "kernels/cpu/dot_impl.h"

namespace levada::kernels {
namespace {

// Rows of x that stay in the second-level cache while all columns pass.
constexpr std::int64_t kRowBlockBytes = 768 * 1024;

template <class V>
[[gnu::always_inline]] inline void store4(float* out, __m128 sums, std::int64_t valid, bool accumulate) {
  if (valid >= 4) {
    _mm_storeu_ps(out, accumulate ? _mm_add_ps(_mm_loadu_ps(out), sums) : sums);
    return;
  }
  alignas(16) float four[4];
  _mm_store_ps(four, sums);
  for (std::int64_t i = 0; i < valid; ++i) out[i] = accumulate ? out[i] + four[i] : four[i];
}

// Rows [0, rows) of x with columns [n, n + 4) of out, w given as the rows behind those columns.
template <class V, class W, bool kPrefetch>
void linear_rows(const LinearArgs& a, std::int64_t row, std::int64_t rows, const FourRows<W>& w, std::int64_t n,
                 std::int64_t fetch_ahead) {
  const std::int64_t valid = a.n - n;
  for_row_tiles<V::kTileRows>(
      rows, [&]<int R>(std::int64_t r) __attribute__((always_inline)) {
        __m128 sums[R];
        dot_tile<V, R, W, kPrefetch>(a.x + (row + r) * a.x_stride, a.x_stride, w, a.k, fetch_ahead, sums);
#pragma GCC unroll 8
        for (int i = 0; i < R; ++i) store4<V>(a.out + (row + r + i) * a.out_stride + n, sums[i], valid, a.accumulate);
      });
}

template <class V>
void widen_row(const Bf16* from, std::int64_t k, float* to) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= k; i += V::kWidth) V::store(to + i, V::load(from + i));
  if (i < k) V::store_n(to + i, V::load_n(from + i, static_cast<int>(k - i)), static_cast<int>(k - i));
}

template <class V, class W>
void linear_few_rows(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end) {
  const W* w = static_cast<const W*>(a.w);
  for (std::int64_t n = n_begin; n < n_end; n += 4) {
    linear_rows<V, W, true>(a, 0, a.rows, four_rows(w + n * a.w_stride, a.w_stride, n_end - n), n, 4 * a.w_stride);
  }
}

template <class V, class W>
void linear_many_rows(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end, float* panel) {
  const W* w = static_cast<const W*>(a.w);
  const std::int64_t row_bytes = a.k * std::int64_t{sizeof(float)};
  std::int64_t block = kRowBlockBytes / (row_bytes > 0 ? row_bytes : 1) / V::kTileRows * V::kTileRows;
  if (block < 4 * V::kTileRows) block = 4 * V::kTileRows;
  for (std::int64_t row = 0; row < a.rows; row += block) {
    const std::int64_t rows = row + block < a.rows ? block : a.rows - row;
    for (std::int64_t n = n_begin; n < n_end; n += 4) {
      const FourRows<W> from = four_rows(w + n * a.w_stride, a.w_stride, n_end - n);
      FourRows<float> wide;
      if constexpr (sizeof(W) == sizeof(float)) {
        wide = from;
      } else {
        for (int i = 0; i < 4; ++i) {
          widen_row<V>(from.row[i], a.k, panel + i * a.k);
          wide.row[i] = panel + i * a.k;
        }
      }
      linear_rows<V, float, false>(a, row, rows, wide, n, 0);
    }
  }
}

inline std::int64_t linear_scratch(std::int64_t k) { return 4 * k; }

template <class V, class W>
void linear_of(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  if (a.rows <= V::kTileRows) {
    linear_few_rows<V, W>(a, n_begin, n_end);
  } else {
    linear_many_rows<V, W>(a, n_begin, n_end, scratch);
  }
}

template <class V>
void linear(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  if (a.w_is_bf16) {
    linear_of<V, Bf16>(a, n_begin, n_end, scratch);
  } else {
    linear_of<V, float>(a, n_begin, n_end, scratch);
  }
}

}  // namespace
}  // namespace levada::kernels
