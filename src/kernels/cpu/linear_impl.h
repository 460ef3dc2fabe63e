// What: linear for one instruction set. Few rows (up to a draft's block that is verified): weights stream from memory once
// and are widened in the tile. Many rows: a panel of weights is widened into the second-level cache, where every tile of
// rows meets it.
// Owner: none.
// Thread: any, on disjoint columns.
// Invariant: see dot_impl.h; all ways give the same bits. Included once by each avx*_table.cc, which supplies V.
#pragma once

#include "kernels/cpu/dot_impl.h"

namespace levada::kernels {
namespace {

// Floats of widened weights that a tile of rows meets one after the other: they stay in the second-level cache, the
// rows of the tile in the first.
constexpr std::int64_t kPanelFloats = 96 * 1024;
// Rows that still stream weights from memory.
constexpr int kWideRows = 8;

inline std::int64_t panel_columns(std::int64_t k) {
  const std::int64_t columns = kPanelFloats / (k > 0 ? k : 1) / 4 * 4;
  return columns > 4 ? columns : 4;
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

// R rows of x from `row` on with columns [n_begin, n_end) of out, whose weight rows start at w. Not inlined: one copy of
// each size of tile is enough.
template <class V, int R, class W, bool kPrefetch>
[[gnu::noinline]] void linear_tile(const LinearArgs& a, const W* w, std::int64_t w_stride, std::int64_t row,
                                   std::int64_t n_begin, std::int64_t n_end) {
  const float* x = a.x + row * a.x_stride;
  float* out = a.out + row * a.out_stride;
  for (std::int64_t n = n_begin; n < n_end; n += 4) {
    __m128 sums[R];
    dot_tile<V, R, W, kPrefetch>(x, a.x_stride, four_rows(w + (n - n_begin) * w_stride, w_stride, n_end - n), a.k,
                                 4 * w_stride, sums);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) store4(out + i * a.out_stride + n, sums[i], n_end - n, a.accumulate);
  }
}

// All rows of x with these columns.
template <class V, class W, bool kPrefetch>
void linear_columns(const LinearArgs& a, const W* w, std::int64_t w_stride, std::int64_t n_begin, std::int64_t n_end) {
  for_row_tiles<V::kTileRows>(
      a.rows, [&]<int R>(std::int64_t row) { linear_tile<V, R, W, kPrefetch>(a, w, w_stride, row, n_begin, n_end); });
}

// All R rows of x with these columns; weights come from memory once, in order.
template <class V, int R, class W>
[[gnu::noinline]] void linear_wide(const LinearArgs& a, const W* w, std::int64_t n_begin, std::int64_t n_end) {
  for (std::int64_t n = n_begin; n < n_end; n += 4) {
    __m128 sums[R];
    dot_wide<V, R, W>(a.x, a.x_stride, four_rows(w + n * a.w_stride, a.w_stride, n_end - n), a.k, 4 * a.w_stride, sums);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) store4(a.out + i * a.out_stride + n, sums[i], n_end - n, a.accumulate);
  }
}

// The ways for rows that stream weights; false: there are more.
template <class V, class W>
bool linear_streamed(const LinearArgs& a, const W* w, std::int64_t n_begin, std::int64_t n_end) {
  if (a.rows > kWideRows) return false;
  if (a.rows <= V::kTileRows) {
    linear_columns<V, W, true>(a, w + n_begin * a.w_stride, a.w_stride, n_begin, n_end);
  } else {
    visit_tile<kWideRows>(0, a.rows, [&]<int R>(std::int64_t) {
      if constexpr (R > V::kTileRows) linear_wide<V, R, W>(a, w, n_begin, n_end);
    });
  }
  return true;
}

template <class V, class W>
void widen_row(const W* from, std::int64_t k, float* to) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= k; i += V::kWidth) V::store(to + i, V::load(from + i));
  if (i < k) V::store_n(to + i, V::load_n(from + i, static_cast<int>(k - i)), static_cast<int>(k - i));
}

inline std::int64_t linear_scratch(std::int64_t k) { return panel_columns(k) * k; }

template <class V>
void linear_of(const LinearArgs& a, const float* w, std::int64_t n_begin, std::int64_t n_end, float*) {
  if (linear_streamed<V>(a, w, n_begin, n_end)) return;
  const std::int64_t columns = panel_columns(a.k);
  for (std::int64_t n = n_begin; n < n_end; n += columns) {
    const std::int64_t end = n + columns < n_end ? n + columns : n_end;
    linear_columns<V, float, false>(a, w + n * a.w_stride, a.w_stride, n, end);
  }
}

template <class V, class W>
void linear_of(const LinearArgs& a, const W* w, std::int64_t n_begin, std::int64_t n_end, float* panel) {
  if (linear_streamed<V>(a, w, n_begin, n_end)) return;
  const std::int64_t columns = panel_columns(a.k);
  for (std::int64_t n = n_begin; n < n_end; n += columns) {
    const std::int64_t end = n + columns < n_end ? n + columns : n_end;
    for (std::int64_t i = n; i < end; ++i) widen_row<V>(w + i * a.w_stride, a.k, panel + (i - n) * a.k);
    linear_columns<V, float, false>(a, panel, a.k, n, end);
  }
}

template <class V>
void linear(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  switch (a.w_type) {
    case WeightType::kF32: return linear_of<V>(a, static_cast<const float*>(a.w), n_begin, n_end, scratch);
    case WeightType::kBF16: return linear_of<V>(a, static_cast<const Bf16*>(a.w), n_begin, n_end, scratch);
    case WeightType::kF16: return linear_of<V>(a, static_cast<const F16*>(a.w), n_begin, n_end, scratch);
  }
}

}  // namespace
}  // namespace levada::kernels
