// Linear with bfloat16 weights by AVX-512's BF16 instructions: 32 products each. See cpu/table.h for what this file may
// not use.
#include "kernels/cpu/bf16_table.h"
#include "kernels/cpu/dot_impl.h"
#include "kernels/cpu/vec_avx512.h"

namespace levada::kernels {
namespace {

using avx512::Vec;

constexpr std::int64_t kPairs = 32;  // elements of a vector
constexpr int kTileRows = 6;         // x 4 accumulators fit the registers
// Rows that stay in the first-level cache while weights stream from memory.
constexpr std::int64_t kFewRows = 2 * kTileRows;
// Columns before its use a column is fetched.
constexpr std::int64_t kAhead = 8;
// Elements of weights that one tile of rows after the other meets: they stay in the second-level cache.
constexpr std::int64_t kCachedElements = 192 * 1024;

[[gnu::always_inline]] inline __mmask32 first_of(std::int64_t n) {
  return static_cast<__mmask32>((std::uint64_t{1} << n) - 1);
}

// R rows from `row` on with columns n to n + 3. kFetch columns from `fetch` on are brought to the second-level cache.
template <int R, int kFetch>
[[gnu::noinline]] void bf16_tile(const Bf16Args& a, std::int64_t row, std::int64_t n, std::int64_t n_end,
                                 const Bf16* fetch) {
  const Bf16* const x = a.x + row * a.x_stride;
  const FourRows<Bf16> w = four_rows(a.w + n * a.w_stride, a.w_stride, n_end - n);
  __m512 acc[R][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) acc[r][c] = _mm512_setzero_ps();
  }
  const auto step = [&](auto load) __attribute__((always_inline)) {
    __m512bh wv[4];
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) wv[c] = load(w.row[c]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512bh xv = load(x + r * a.x_stride);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], xv, wv[c]);
    }
  };
  std::int64_t i = 0;
  for (; i + kPairs <= a.k; i += kPairs) {
#pragma GCC unroll 4
    for (int c = 0; c < kFetch; ++c) __builtin_prefetch(fetch + c * a.w_stride + i, 0, 2);
    step([i](const Bf16* p) __attribute__((always_inline)) { return (__m512bh)_mm512_loadu_si512(p + i); });
  }
  if (i < a.k) {
    const __mmask32 rest = first_of(a.k - i);
    step([ i, rest ](const Bf16* p)
             __attribute__((always_inline)) { return (__m512bh)_mm512_maskz_loadu_epi16(rest, p + i); });
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m128 sums = Vec::sum4({acc[r][0]}, {acc[r][1]}, {acc[r][2]}, {acc[r][3]});
    store4(a.out + (row + r) * a.out_stride + n, sums, n_end - n, a.accumulate);
  }
}

// What will be wanted soon after column n.
const Bf16* ahead(const Bf16Args& a, std::int64_t n) { return a.w + (n + kAhead) * a.w_stride; }

// All rows, at most two tiles, with four columns after the other. Each tile fetches its share of what comes: memory takes
// a few dozen lines at a time.
void few_rows(const Bf16Args& a, std::int64_t n_begin, std::int64_t n_end) {
  for (std::int64_t n = n_begin; n < n_end; n += 4) {
    const Bf16* const fetch = ahead(a, n);
    for_row_tiles<kTileRows>(a.rows, [&]<int R>(std::int64_t row) {
      if (a.rows <= kTileRows) return bf16_tile<R, 4>(a, row, n, n_end, fetch);
      bf16_tile<R, 2>(a, row, n, n_end, row == 0 ? fetch : fetch + 2 * a.w_stride);
    });
  }
}

// All columns with one tile of rows after the other; the first fetches for all.
void cached_columns(const Bf16Args& a, std::int64_t n_begin, std::int64_t n_end) {
  for_row_tiles<kTileRows>(a.rows, [&]<int R>(std::int64_t row) {
    for (std::int64_t n = n_begin; n < n_end; n += 4) {
      row == 0 ? bf16_tile<R, 4>(a, row, n, n_end, ahead(a, n)) : bf16_tile<R, 0>(a, row, n, n_end, nullptr);
    }
  });
}

void bf16_linear(const Bf16Args& a, std::int64_t n_begin, std::int64_t n_end) {
  if (a.rows <= kFewRows) return few_rows(a, n_begin, n_end);
  const std::int64_t fit = kCachedElements / (a.k > 0 ? a.k : 1) / 4 * 4, together = fit > 4 ? fit : 4;
  for (std::int64_t n = n_begin; n < n_end; n += together) {
    cached_columns(a, n, n + together < n_end ? n + together : n_end);
  }
}

// A masked store costs many times a whole one on a Zen 4.
void bf16_round(const float* x, std::int64_t k, Bf16* out) {
  std::int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
  }
  if (i == k) return;
  const auto rest = static_cast<__mmask16>((1u << (k - i)) - 1);
  _mm256_mask_storeu_epi16(out + i, rest, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, x + i)));
}

}  // namespace

extern const Bf16Table kAvx512Bf16Table;
const Bf16Table kAvx512Bf16Table = {.name = "avx512_bf16", .round = bf16_round, .linear = bf16_linear};

}  // namespace levada::kernels
