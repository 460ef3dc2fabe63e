// What: linear on GGUF's blocks for one instruction set: a panel of sixteen rows of w, one lane each.
// Owner: none.
// Thread: any, on disjoint panels.
// Invariant: see quant_table.h. Included once by each quant_avx*.cc, which supplies Q: kLanes columns of a panel, its
// integer vector I and float vector F. `c` is the first column of those lanes in the panel.
#pragma once

#include "kernels/cpu/quant_table.h"

#define LEVADA_HOT [[gnu::always_inline]] inline

namespace levada::kernels {
namespace {

constexpr std::int64_t kPanel = QuantMatrix::kPanelRows;
// Bytes of panels that all tiles of rows meet before the next are read: they stay in the second-level cache.
constexpr std::int64_t kCachedPanels = 128 * 1024;

// The integer products of a block with both digits of the activations of R rows.
template <class Q, int R>
struct Dots {
  typename Q::I of[2][R];
};

// One block's share of R rows. Each format adds `d * dot` (and its minimum) to acc.
template <class Q, int R>
struct Tile {
  const RoundedBlock* x;  // this block of the first row
  std::int64_t x_stride;  // blocks of a row
  typename Q::F* acc;

  LEVADA_HOT const RoundedBlock& block(int r, std::int64_t b = 0) const { return x[r * x_stride + b]; }

  // Minus `bias` times the sums of halves [first, last] of block b: what quants stored with that bias have too much.
  LEVADA_HOT void start(Dots<Q, R>& dots, std::int64_t b, int bias, int first = 0, int last = 1) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int digit = 0; digit < 2; ++digit) {
        const auto& sum = block(r, b).sum[digit];
        dots.of[digit][r] = Q::set_int(bias == 0 ? 0 : -bias * (first == last ? sum[first] : sum[0] + sum[1]));
      }
    }
  }
  // As multiply(), of nibbles: sums of a whole block of theirs fit what start_nibbles() and end_nibbles() enclose.
  LEVADA_HOT void multiply_nibbles(Dots<Q, R>& dots, typename Q::I quants, std::int64_t b, int j) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      dots.of[0][r] = Q::dot_nibbles(dots.of[0][r], quants, block(r, b).digit[0] + 4 * j);
      dots.of[1][r] = Q::dot_nibbles(dots.of[1][r], quants, block(r, b).digit[1] + 4 * j);
    }
  }
  LEVADA_HOT void start_nibbles(Dots<Q, R>& dots, std::int64_t b, int bias) const {
    if constexpr (Q::kShortNibbles) bias = 0;
    start(dots, b, bias);
  }
  LEVADA_HOT void end_nibbles(Dots<Q, R>& dots, std::int64_t b, int bias) const {
    if constexpr (Q::kShortNibbles) {
      Dots<Q, R> whole;
      start(whole, b, bias);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
        for (int digit = 0; digit < 2; ++digit)
          dots.of[digit][r] = Q::add_shorts(whole.of[digit][r], dots.of[digit][r]);
      }
    }
  }
  // Products with activations 4 j to 4 j + 3 of block b.
  LEVADA_HOT void multiply(Dots<Q, R>& dots, typename Q::I quants, std::int64_t b, int j) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      dots.of[0][r] = Q::dot(dots.of[0][r], quants, block(r, b).digit[0] + 4 * j);
      dots.of[1][r] = Q::dot(dots.of[1][r], quants, block(r, b).digit[1] + 4 * j);
    }
  }
  LEVADA_HOT void add(const Dots<Q, R>& dots, std::int64_t b, typename Q::F d) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto both = Q::fma(Q::set(kDigitBase), Q::to_float(dots.of[0][r]), Q::to_float(dots.of[1][r]));
      acc[r] = Q::fma(both, Q::mul(d, Q::set(block(r, b).scale)), acc[r]);
    }
  }
  LEVADA_HOT void add_minimum(std::int64_t b, typename Q::F m) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = Q::fma(m, Q::set(block(r, b).scaled_sum), acc[r]);
  }
};

template <class Q, int R, bool kMinimum>
LEVADA_HOT void nibble_block(const Tile<Q, R>& tile, const std::byte* w, std::int64_t c) {
  Dots<Q, R> dots;
  tile.start_nibbles(dots, 0, kMinimum ? 0 : 8);
  const std::byte* quants = w + (kMinimum ? 64 : 32) + 4 * c;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const typename Q::I pair = Q::load(quants + 64 * j);
    tile.multiply_nibbles(dots, Q::low(pair), 0, j);
    tile.multiply_nibbles(dots, Q::high(pair), 0, j + 4);
  }
  tile.end_nibbles(dots, 0, kMinimum ? 0 : 8);
  if constexpr (kMinimum) tile.add_minimum(0, Q::halves(w + 32 + 2 * c));
  tile.add(dots, 0, Q::halves(w + 2 * c));
}

template <class Q, int R>
LEVADA_HOT void q8_0_block(const Tile<Q, R>& tile, const std::byte* w, std::int64_t c) {
  Dots<Q, R> dots;
  tile.start(dots, 0, Q::kSignedBias);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const typename Q::I quants = Q::load_signed(w + 32 + 64 * j + 4 * c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      dots.of[0][r] = Q::dot_signed(dots.of[0][r], quants, tile.block(r).digit[0] + 4 * j);
      dots.of[1][r] = Q::dot_signed(dots.of[1][r], quants, tile.block(r).digit[1] + 4 * j);
    }
  }
  tile.add(dots, 0, Q::halves(w + 2 * c));
}

// With the first digit alone.
template <class Q, int R>
LEVADA_HOT void rough_q8_0_block(const Tile<Q, R>& tile, const std::byte* w, std::int64_t c) {
  typename Q::I dots[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const auto& sum = tile.block(r).sum[0];
    dots[r] = Q::set_int(Q::kSignedBias == 0 ? 0 : -Q::kSignedBias * (sum[0] + sum[1]));
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const typename Q::I quants = Q::load_signed(w + 32 + 64 * j + 4 * c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dots[r] = Q::dot_signed(dots[r], quants, tile.block(r).digit[0] + 4 * j);
  }
  const typename Q::F d = Q::halves(w + 2 * c);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    tile.acc[r] = Q::fma(Q::to_float(dots[r]), Q::mul(d, Q::set(kDigitBase * tile.block(r).scale)), tile.acc[r]);
  }
}

// The 6-bit scale and minimum of group g: twelve bytes of each row (docs/formats/gguf.md).
template <class Q>
LEVADA_HOT typename Q::I q4_k_scale(const std::byte* packed, int g) {
  if (g < 4) return Q::and_int(Q::bytes(packed + kPanel * g), 63);
  return Q::or_(Q::and_int(Q::bytes(packed + kPanel * (g + 4)), 15),
                Q::template left<4>(Q::template right<6>(Q::bytes(packed + kPanel * (g - 4)))));
}
template <class Q>
LEVADA_HOT typename Q::I q4_k_minimum(const std::byte* packed, int g) {
  if (g < 4) return Q::and_int(Q::bytes(packed + kPanel * (g + 4)), 63);
  return Q::or_(Q::template right<4>(Q::bytes(packed + kPanel * (g + 4))),
                Q::template left<4>(Q::template right<6>(Q::bytes(packed + kPanel * g))));
}

template <class Q, int R>
LEVADA_HOT void q4_k_block(const Tile<Q, R>& tile, const std::byte* w, std::int64_t c) {
  const typename Q::F d = Q::halves(w + 2 * c), m = Q::negate(Q::halves(w + 32 + 2 * c));
  const std::byte* packed = w + 64 + c;
  for (int g = 0; g < 8; g += 2) {  // two groups share 32 bytes of a row
    const std::byte* quants = w + 256 + 512 * (g / 2) + 4 * c;
    Dots<Q, R> even, odd;
    tile.start_nibbles(even, g, 0);
    tile.start_nibbles(odd, g, 0);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const typename Q::I pair = Q::load(quants + 64 * j);
      tile.multiply_nibbles(even, Q::low(pair), g, j);
      tile.multiply_nibbles(odd, Q::high(pair), g + 1, j);
    }
    tile.end_nibbles(even, g, 0);
    tile.end_nibbles(odd, g + 1, 0);
    tile.add_minimum(g, Q::mul(m, Q::to_float(q4_k_minimum<Q>(packed, g))));
    tile.add(even, g, Q::mul(d, Q::to_float(q4_k_scale<Q>(packed, g))));
    tile.add_minimum(g + 1, Q::mul(m, Q::to_float(q4_k_minimum<Q>(packed, g + 1))));
    tile.add(odd, g + 1, Q::mul(d, Q::to_float(q4_k_scale<Q>(packed, g + 1))));
  }
}

// Sixteen elements of each of a half's four quarters: bytes 4 j of `low`, of the 32 behind it, and of `high`.
template <class Q, int R>
LEVADA_HOT void q6_k_sixteen(const Tile<Q, R>& tile, const std::byte* low, const std::byte* high, int first,
                             int sixteen, Dots<Q, R> (&dots)[4]) {
#pragma GCC unroll 4
  for (int quarter = 0; quarter < 4; ++quarter) tile.start(dots[quarter], first + quarter, 32, sixteen, sixteen);
#pragma GCC unroll 4
  for (int j = 4 * sixteen; j < 4 * sixteen + 4; ++j) {
    const typename Q::I a = Q::load(low + 64 * j), b = Q::load(low + 512 + 64 * j), h = Q::load(high + 64 * j);
    tile.multiply(dots[0], Q::or_(Q::low(a), Q::template top_bits<0>(h)), first, j);
    tile.multiply(dots[1], Q::or_(Q::low(b), Q::template top_bits<1>(h)), first + 1, j);
    tile.multiply(dots[2], Q::or_(Q::high(a), Q::template top_bits<2>(h)), first + 2, j);
    tile.multiply(dots[3], Q::or_(Q::high(b), Q::template top_bits<3>(h)), first + 3, j);
  }
}

template <class Q, int R>
LEVADA_HOT void q6_k_block(const Tile<Q, R>& tile, const std::byte* w, std::int64_t c) {
  const std::byte* scales = w + kPanel * 192 + c;
  const typename Q::F d = Q::halves(w + kPanel * 208 + 2 * c);
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = w + kPanel * 64 * half + 4 * c;
    const std::byte* high = w + kPanel * (128 + 32 * half) + 4 * c;
    Dots<Q, R> dots[4], more[4];
    q6_k_sixteen<Q, R>(tile, low, high, 4 * half, 0, dots);
    q6_k_sixteen<Q, R>(tile, low, high, 4 * half, 1, more);
#pragma GCC unroll 4
    for (int quarter = 0; quarter < 4; ++quarter) {
      const std::byte* pair = scales + kPanel * (8 * half + 2 * quarter);
      const typename Q::I s0 = Q::signed_bytes(pair), s1 = Q::signed_bytes(pair + kPanel);
#pragma GCC unroll 2
      for (int digit = 0; digit < 2; ++digit) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          dots[quarter].of[digit][r] =
              Q::add(Q::times(dots[quarter].of[digit][r], s0), Q::times(more[quarter].of[digit][r], s1));
        }
      }
      tile.add(dots[quarter], 4 * half + quarter, d);
    }
  }
}

template <class Q, QuantFormat kFormat, int R>
LEVADA_HOT void add_block(const Tile<Q, R>& tile, const std::byte* w, std::int64_t c) {
  if constexpr (kFormat == QuantFormat::kQ8_0) q8_0_block<Q, R>(tile, w, c);
  if constexpr (kFormat == QuantFormat::kQ4_0) nibble_block<Q, R, false>(tile, w, c);
  if constexpr (kFormat == QuantFormat::kQ4_1) nibble_block<Q, R, true>(tile, w, c);
  if constexpr (kFormat == QuantFormat::kQ4_K) q4_k_block<Q, R>(tile, w, c);
  if constexpr (kFormat == QuantFormat::kQ6_K) q6_k_block<Q, R>(tile, w, c);
}

template <QuantFormat kFormat>
struct Shape {
  static constexpr bool kSuper = kFormat == QuantFormat::kQ4_K || kFormat == QuantFormat::kQ6_K;
  static constexpr std::int64_t kElements = kSuper ? 256 : 32;
  static constexpr std::int64_t kBytes = kPanel * (kFormat == QuantFormat::kQ8_0   ? 34
                                                   : kFormat == QuantFormat::kQ4_0 ? 18
                                                   : kFormat == QuantFormat::kQ4_1 ? 20
                                                   : kFormat == QuantFormat::kQ4_K ? 144
                                                                                   : 210);
};

// A panel that one tile of rows meets comes from memory; the processor's own prefetching stops at every page.
constexpr std::int64_t kFetchAhead = 4096;

template <std::int64_t kBytes>
LEVADA_HOT void fetch_ahead(const std::byte* w, const std::byte* end) {
  if (w + kFetchAhead >= end) return;  // another thread's
#pragma GCC unroll 8
  for (std::int64_t line = 0; line < kBytes; line += 64) __builtin_prefetch(w + kFetchAhead + line);
}

// R rows from `row` on with one panel; those up to `end` come next.
template <class Q, QuantFormat kFormat, int R, bool kRough>
[[gnu::noinline]] void quant_tile(const QuantArgs& a, std::int64_t panel, std::int64_t end, std::int64_t row) {
  constexpr std::int64_t kElements = Shape<kFormat>::kElements, kBytes = Shape<kFormat>::kBytes;
  const std::int64_t blocks = a.k / kElements, x_stride = a.k / 32;
  // What is fetched ahead, once: the first lanes of a panel do it for all.
  const std::byte* fetched = R == 1 || a.rows == R ? a.panels + end * a.panel_bytes : nullptr;
  for (std::int64_t c = 0; c < kPanel; c += Q::kLanes) {
    const std::int64_t column = panel * kPanel + c;
    if (column >= a.n) return;
    const std::byte* w = a.panels + panel * a.panel_bytes;
    typename Q::F acc[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = Q::set(0);
    Tile<Q, R> tile{a.x + row * x_stride, x_stride, acc};
    for (std::int64_t b = 0; b < blocks; ++b, w += kBytes, tile.x += kElements / 32) {
      fetch_ahead<kBytes>(w, fetched);
      if constexpr (kRough) {
        rough_q8_0_block<Q, R>(tile, w, c);
      } else {
        add_block<Q, kFormat, R>(tile, w, c);
      }
    }
    fetched = nullptr;
    const std::int64_t valid = a.n - column < Q::kLanes ? a.n - column : Q::kLanes;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      Q::store(a.out + (row + r) * a.out_stride + column, acc[r], static_cast<int>(valid), a.accumulate);
    }
  }
}

template <class Q, QuantFormat kFormat, int R, bool kRough>
void rows_of_panels(const QuantArgs& a, std::int64_t begin, std::int64_t end, std::int64_t row, std::int64_t rows) {
  if constexpr (R > 1) {
    if (rows < R) return rows_of_panels<Q, kFormat, R - 1, kRough>(a, begin, end, row, rows);
  }
  for (std::int64_t panel = begin; panel < end; ++panel) quant_tile<Q, kFormat, R, kRough>(a, panel, end, row);
}

template <class Q, QuantFormat kFormat, int kRows, bool kRough = false>
void quant_linear_of(const QuantArgs& a, std::int64_t begin, std::int64_t end) {
  const std::int64_t fit = kCachedPanels / a.panel_bytes > 0 ? kCachedPanels / a.panel_bytes : 1;
  const std::int64_t together = a.rows > kRows ? fit : end - begin;
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t last = first + together < end ? first + together : end;
    for (std::int64_t row = 0; row < a.rows; row += kRows) {
      const std::int64_t rows = a.rows - row < kRows ? a.rows - row : kRows;
      rows_of_panels<Q, kFormat, kRows, kRough>(a, first, last, row, rows);
    }
  }
}

inline std::int64_t no_scratch(std::int64_t) { return 0; }

template <class Q>
void quant_linear(const QuantArgs& a, std::int64_t begin, std::int64_t end, float*) {
  using enum QuantFormat;
  switch (a.format) {
    case kQ8_0: return quant_linear_of<Q, kQ8_0, Q::kRows>(a, begin, end);
    case kQ4_0: return quant_linear_of<Q, kQ4_0, Q::kRows>(a, begin, end);
    case kQ4_1: return quant_linear_of<Q, kQ4_1, Q::kRows>(a, begin, end);
    case kQ4_K: return quant_linear_of<Q, kQ4_K, Q::kRowsQ4_K>(a, begin, end);
    case kQ6_K: return quant_linear_of<Q, kQ6_K, Q::kRowsQ6_K>(a, begin, end);
  }
}

template <class Q>
void quant_linear_rough(const QuantArgs& a, std::int64_t begin, std::int64_t end, float*) {
  quant_linear_of<Q, QuantFormat::kQ8_0, Q::kRowsRough, true>(a, begin, end);
}

// Magnitudes are compared as integers, which order like the floats they are the bits of.
inline float largest_magnitude(const float* x) {
  std::int32_t largest = 0;
  for (int i = 0; i < 32; ++i) {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return __builtin_bit_cast(float, largest);
}

// Adding 1.5 * 2^23 leaves the nearest whole number, ties to even, in the low bits.
constexpr float kRounder = 12582912.0f;

// Sets the block's scale; what to multiply its numbers with.
LEVADA_HOT float scale_block(float magnitude, RoundedBlock* out) {
  const bool tiny = magnitude < 0x1p-100f;  // its inverse may not be finite
  out->scale = tiny ? 0.0f : magnitude / (127.0f * kDigitBase);
  return tiny ? 0.0f : 1.0f / out->scale;
}

LEVADA_HOT void sum_block(RoundedBlock* out) {
  const std::int32_t total = kDigitBase * (out->sum[0][0] + out->sum[0][1]) + out->sum[1][0] + out->sum[1][1];
  out->scaled_sum = out->scale * static_cast<float>(total);
}

inline void round_block(const float* x, RoundedBlock* out) {
  const float factor = scale_block(largest_magnitude(x), out);
  for (int i = 0; i < 32; ++i) {
    const float whole = (x[i] * factor + kRounder) - kRounder;
    const float first = whole * (1.0f / kDigitBase) + kRounder;
    const float second = whole - (first - kRounder) * kDigitBase + kRounder;
    out->digit[0][i] = static_cast<std::int8_t>(__builtin_bit_cast(std::uint32_t, first) & 0xff);
    out->digit[1][i] = static_cast<std::int8_t>(__builtin_bit_cast(std::uint32_t, second) & 0xff);
  }
  for (int digit = 0; digit < 2; ++digit) {
    for (int half = 0; half < 2; ++half) {
      std::int32_t sum = 0;
      for (int i = 0; i < 16; ++i) sum += out->digit[digit][16 * half + i];
      out->sum[digit][half] = sum;
    }
  }
  sum_block(out);
}

[[maybe_unused]] inline void round_row(const float* x, std::int64_t k, RoundedBlock* out) {
  for (std::int64_t b = 0; b < k / 32; ++b) round_block(x + 32 * b, out + b);
}

}  // namespace
}  // namespace levada::kernels
