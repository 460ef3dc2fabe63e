// What: linear for one instruction set. Weights stream from memory once. One tile of rows: they are widened in the tile.
// Few rows (a draft's block that is verified): four columns at a time are widened into the first-level cache; many rows:
// a panel of columns into the second-level cache, where every tile of rows meets them.
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
// Rows that stay in the first-level cache beside four columns of weights.
constexpr std::int64_t kFewRows = 12;
// Columns before its use a column is fetched.
constexpr std::int64_t kAhead = 8;

inline std::int64_t panel_columns(std::int64_t k) {
  const std::int64_t columns = kPanelFloats / (k > 0 ? k : 1) / 4 * 4;
  return columns > 4 ? columns : 4;
}

// R rows of x from `row` on with columns n to n + 3, those from n_end on left out, whose weight rows start at w. Not
// inlined: one copy of each size of tile is enough.
template <class V, int R, class W, int kFetch>
[[gnu::noinline]] void linear_tile(const LinearArgs& a, const W* w, std::int64_t w_stride, std::int64_t row,
                                   std::int64_t n, std::int64_t n_end, const W* fetch) {
  __m128 sums[R];
  dot_tile<V, R, W, kFetch>(a.x + row * a.x_stride, a.x_stride, four_rows(w, w_stride, n_end - n), a.k, fetch, w_stride,
                            sums);
  float* const out = a.out + row * a.out_stride + n;
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i) store4(out + i * a.out_stride, sums[i], n_end - n, a.accumulate);
}

// What will be wanted soon after column n.
template <class W>
const W* ahead(const LinearArgs& a, std::int64_t n) {
  return static_cast<const W*>(a.w) + (n + kAhead) * a.w_stride;
}

// All rows, one tile, with weights that stream from memory.
template <class V, class W>
void linear_streamed(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end) {
  visit_tile<V::kTileRows>(0, a.rows, [&]<int R>(std::int64_t row) {
    for (std::int64_t n = n_begin; n < n_end; n += 4) {
      const W* const w = static_cast<const W*>(a.w) + n * a.w_stride;
      linear_tile<V, R, W, 4>(a, w, a.w_stride, row, n, n_end, ahead<W>(a, n));
    }
  });
}

// All rows with these columns.
template <class V>
void linear_columns(const LinearArgs& a, const float* w, std::int64_t w_stride, std::int64_t n_begin,
                    std::int64_t n_end) {
  for_row_tiles<V::kTileRows>(a.rows, [&]<int R>(std::int64_t row) {
    for (std::int64_t n = n_begin; n < n_end; n += 4)
      linear_tile<V, R, float, 0>(a, w + (n - n_begin) * w_stride, w_stride, row, n, n_end, nullptr);
  });
}

// The same with weights where they lie: the first two tiles of rows fetch half of what comes each, as memory takes a few
// dozen lines at a time.
template <class V>
void linear_in_place(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end) {
  const auto* const w = static_cast<const float*>(a.w);
  for_row_tiles<V::kTileRows>(a.rows, [&]<int R>(std::int64_t row) {
    for (std::int64_t n = n_begin; n < n_end; n += 4) {
      const float* const fetch = ahead<float>(a, n);
      const float* const four = w + n * a.w_stride;
      if (row == 0) {
        linear_tile<V, R, float, 2>(a, four, a.w_stride, row, n, n_end, fetch);
      } else if (row <= V::kTileRows) {
        linear_tile<V, R, float, 2>(a, four, a.w_stride, row, n, n_end, fetch + 2 * a.w_stride);
      } else {
        linear_tile<V, R, float, 0>(a, four, a.w_stride, row, n, n_end, nullptr);
      }
    }
  });
}

template <class V, class W>
void widen_row(const W* from, std::int64_t k, std::int64_t fetch_ahead, float* to) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= k; i += V::kWidth) {
    __builtin_prefetch(from + i + fetch_ahead, 0, 2);
    V::store(to + i, V::load(from + i));
  }
  if (i < k) V::store_n(to + i, V::load_n(from + i, static_cast<int>(k - i)), static_cast<int>(k - i));
}

inline std::int64_t linear_scratch(std::int64_t k) { return panel_columns(k) * k; }

// Columns that all tiles of rows meet before the next ones are read: few rows stay in the first-level cache.
inline std::int64_t columns_together(const LinearArgs& a) { return a.rows <= kFewRows ? 4 : panel_columns(a.k); }

template <class V>
void linear_of(const LinearArgs& a, const float*, std::int64_t n_begin, std::int64_t n_end, float*) {
  if (a.rows <= V::kTileRows) return linear_streamed<V, float>(a, n_begin, n_end);
  const std::int64_t columns = columns_together(a);
  for (std::int64_t n = n_begin; n < n_end; n += columns) {
    linear_in_place<V>(a, n, n + columns < n_end ? n + columns : n_end);
  }
}

template <class V, class W>
void linear_of(const LinearArgs& a, const W* w, std::int64_t n_begin, std::int64_t n_end, float* panel) {
  if (a.rows <= V::kTileRows) return linear_streamed<V, W>(a, n_begin, n_end);
  const std::int64_t columns = columns_together(a);
  for (std::int64_t n = n_begin; n < n_end; n += columns) {
    const std::int64_t end = n + columns < n_end ? n + columns : n_end;
    for (std::int64_t i = n; i < end; ++i)
      widen_row<V>(w + i * a.w_stride, a.k, kAhead * a.w_stride, panel + (i - n) * a.k);
    linear_columns<V>(a, panel, a.k, n, end);
  }
}

template <class V>
void linear(const LinearArgs& a, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  if (a.rows == 0) return;
  switch (a.w_type) {
    case WeightType::kF32: return linear_of<V>(a, static_cast<const float*>(a.w), n_begin, n_end, scratch);
    case WeightType::kBF16: return linear_of<V>(a, static_cast<const Bf16*>(a.w), n_begin, n_end, scratch);
    case WeightType::kF16: return linear_of<V>(a, static_cast<const F16*>(a.w), n_begin, n_end, scratch);
  }
}

}  // namespace
}  // namespace levada::kernels
