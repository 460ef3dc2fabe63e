// Many rows on GGUF's blocks with AMX tiles: a panel's groups of 32 elements are unpacked once and meet sixteen rows at a
// time. Integer products are exact and are scaled in the order of quant_impl.h, so the bits are the same. Few rows, and
// forms with scales inside a group, take the way of AVX-512. See cpu/table.h for what this file may not use.
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/quant_table.h"

#define LEVADA_HOT [[gnu::always_inline]] inline

namespace levada::kernels {

extern const QuantTable kAvx512QuantTable;

namespace {

constexpr std::int64_t kPanel = QuantMatrix::kPanelRows, kTileRows = 16;

// 32 elements of a panel's sixteen rows, as a tile wants them: four bytes of each row, then the next four.
struct alignas(64) Group {
  std::int8_t quants[8][4 * kPanel];
  float factor[kPanel], minimum[kPanel];
};
// Unpacked panels that meet one tile of rows after the other: they stay in the second-level cache.
constexpr std::int64_t kCachedBytes = 256 * 1024;

std::int64_t panels_together(std::int64_t k) {
  const std::int64_t fit = kCachedBytes / (k / 32 * std::int64_t{sizeof(Group)});
  return fit > 0 ? fit : 1;
}

std::int64_t amx_scratch(std::int64_t k) {
  return panels_together(k) * (k / 32) * std::int64_t{sizeof(Group) / sizeof(float)};
}

LEVADA_HOT __m512 halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LEVADA_HOT __m512i bytes(const std::byte* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LEVADA_HOT __m512i low(__m512i pair) { return _mm512_and_si512(pair, _mm512_set1_epi8(15)); }
LEVADA_HOT __m512i high(__m512i pair) { return low(_mm512_srli_epi16(pair, 4)); }
LEVADA_HOT __m512i bits(__m512i x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi32(mask)); }

void unpack_q8_0(const std::byte* w, Group* out) {
  _mm512_store_ps(out->factor, halves(w));
  for (int j = 0; j < 8; ++j) _mm512_store_si512(out->quants[j], _mm512_loadu_si512(w + 32 + 64 * j));
}

template <bool kMinimum>
void unpack_nibbles(const std::byte* w, Group* out) {
  _mm512_store_ps(out->factor, halves(w));
  if constexpr (kMinimum) _mm512_store_ps(out->minimum, halves(w + 32));
  const __m512i bias = _mm512_set1_epi8(kMinimum ? 0 : 8);
  for (int j = 0; j < 4; ++j) {
    const __m512i pair = _mm512_loadu_si512(w + (kMinimum ? 64 : 32) + 64 * j);
    _mm512_store_si512(out->quants[j], _mm512_sub_epi8(low(pair), bias));
    _mm512_store_si512(out->quants[j + 4], _mm512_sub_epi8(high(pair), bias));
  }
}

// Eight groups; scales and minima as q4_k_scale and q4_k_minimum of quant_impl.h read them.
void unpack_q4_k(const std::byte* w, Group* out) {
  const __m512 d = halves(w), m = _mm512_xor_ps(halves(w + 32), _mm512_set1_ps(-0.0f));
  const std::byte* packed = w + 64;
  for (int g = 0; g < 8; ++g) {
    const __m512i at = bytes(packed + kPanel * (g < 4 ? g : g - 4)),
                  above = bytes(packed + kPanel * (g < 4 ? g + 4 : g));
    const __m512i last = bytes(packed + kPanel * (g < 4 ? 0 : g + 4));
    const __m512i top_scale = _mm512_slli_epi32(_mm512_srli_epi32(at, 6), 4);
    const __m512i top_minimum = _mm512_slli_epi32(_mm512_srli_epi32(above, 6), 4);
    const __m512i scale = g < 4 ? bits(at, 63) : _mm512_or_si512(bits(last, 15), top_scale);
    const __m512i minimum = g < 4 ? bits(above, 63) : _mm512_or_si512(_mm512_srli_epi32(last, 4), top_minimum);
    _mm512_store_ps(out[g].factor, _mm512_mul_ps(d, _mm512_cvtepi32_ps(scale)));
    _mm512_store_ps(out[g].minimum, _mm512_mul_ps(m, _mm512_cvtepi32_ps(minimum)));
    for (int j = 0; j < 8; ++j) {
      const __m512i pair = _mm512_loadu_si512(w + 256 + 512 * (g / 2) + 64 * j);
      _mm512_store_si512(out[g].quants[j], g % 2 == 0 ? low(pair) : high(pair));
    }
  }
}

void unpack_panel(QuantFormat format, const std::byte* w, std::int64_t k, Group* out) {
  for (std::int64_t g = 0; g < k / 32; ++g) {
    switch (format) {
      case QuantFormat::kQ8_0: unpack_q8_0(w + kPanel * 34 * g, out + g); break;
      case QuantFormat::kQ4_0: unpack_nibbles<false>(w + kPanel * 18 * g, out + g); break;
      case QuantFormat::kQ4_1: unpack_nibbles<true>(w + kPanel * 20 * g, out + g); break;
      case QuantFormat::kQ4_K:
        if (g % 8 == 0) unpack_q4_k(w + kPanel * 144 * (g / 8), out + g);
        break;
      case QuantFormat::kQ6_K: break;
    }
  }
}

void amx_round(const float* x, std::int64_t k, RoundedBlock* out) { kAvx512QuantTable.round(x, k, out); }

// What the processor reads tile shapes from.
struct alignas(64) TileShapes {
  std::uint8_t palette, first_row, zero[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

// Tiles 0 to 3: sums, [turn][digit]; 4: weights; 5 and 6: both digits of sixteen rows.
void configure_tiles() {
  TileShapes shapes{};
  shapes.palette = 1;
  for (int tile = 0; tile < 4; ++tile) {
    shapes.row_bytes[tile] = 4 * kPanel;
    shapes.rows[tile] = kTileRows;
  }
  shapes.row_bytes[4] = 4 * kPanel;
  shapes.rows[4] = 8;
  for (int tile = 5; tile < 7; ++tile) {
    shapes.row_bytes[tile] = 32;
    shapes.rows[tile] = kTileRows;
  }
  __asm__ volatile("" : : "r"(&shapes) : "memory");  // g++ 12 takes the next line to read eight bytes only
  _tile_loadconfig(&shapes);
}

// Products of one group with sixteen rows, [digit][row][lane].
struct alignas(64) Products {
  std::int32_t of[2][kTileRows][kPanel];
};

// Two groups are under way at a time: while one is scaled, the tiles multiply the next.
template <int kTurn>
LEVADA_HOT void multiply(const Group& w, const RoundedBlock* x, std::int64_t x_bytes, Products& out) {
  _tile_loadd(4, w.quants, 64);
  _tile_loadd(5, x->digit[0], x_bytes);
  _tile_loadd(6, x->digit[1], x_bytes);
  if constexpr (kTurn == 0) {  // a tile's number is part of the instruction's text
    _tile_zero(0);
    _tile_zero(1);
    _tile_dpbssd(0, 5, 4);
    _tile_dpbssd(1, 6, 4);
    _tile_stored(0, out.of[0], 64);
    _tile_stored(1, out.of[1], 64);
  } else {
    _tile_zero(2);
    _tile_zero(3);
    _tile_dpbssd(2, 5, 4);
    _tile_dpbssd(3, 6, 4);
    _tile_stored(2, out.of[0], 64);
    _tile_stored(3, out.of[1], 64);
  }
}

template <bool kMinimum>
LEVADA_HOT void scale(const Group& w, const RoundedBlock* x, std::int64_t x_stride, const Products& products,
                      __m512 (&acc)[kTileRows]) {
  const __m512 factor = _mm512_load_ps(w.factor), base = _mm512_set1_ps(kDigitBase);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    const RoundedBlock& block = x[r * x_stride];
    if constexpr (kMinimum)
      acc[r] = _mm512_fmadd_ps(_mm512_load_ps(w.minimum), _mm512_set1_ps(block.scaled_sum), acc[r]);
    const __m512 first = _mm512_cvtepi32_ps(_mm512_load_si512(products.of[0][r]));
    const __m512 both = _mm512_fmadd_ps(base, first, _mm512_cvtepi32_ps(_mm512_load_si512(products.of[1][r])));
    acc[r] = _mm512_fmadd_ps(both, _mm512_mul_ps(factor, _mm512_set1_ps(block.scale)), acc[r]);
  }
}

// Sixteen rows from `row` on with one unpacked panel.
template <bool kMinimum>
[[gnu::noinline]] void tile(const QuantArgs& a, const Group* w, std::int64_t panel, std::int64_t row) {
  const std::int64_t groups = a.k / 32, x_bytes = groups * std::int64_t{sizeof(RoundedBlock)};
  const RoundedBlock* const x = a.x + row * groups;
  Products products[2];
  __m512 acc[kTileRows];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) acc[r] = _mm512_setzero_ps();
  multiply<0>(w[0], x, x_bytes, products[0]);
  for (std::int64_t g = 0; g < groups; g += 2) {
    if (g + 1 < groups) multiply<1>(w[g + 1], x + g + 1, x_bytes, products[1]);
    scale<kMinimum>(w[g], x + g, groups, products[0], acc);
    if (g + 1 == groups) break;
    if (g + 2 < groups) multiply<0>(w[g + 2], x + g + 2, x_bytes, products[0]);
    scale<kMinimum>(w[g + 1], x + g + 1, groups, products[1], acc);
  }
  const std::int64_t column = panel * kPanel, valid = a.n - column < kPanel ? a.n - column : kPanel;
  const auto mask = static_cast<__mmask16>((1u << valid) - 1);
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    float* const out = a.out + (row + r) * a.out_stride + column;
    if (a.accumulate) acc[r] = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), acc[r]);
    _mm512_mask_storeu_ps(out, mask, acc[r]);
  }
}

template <bool kMinimum>
void tiles(const QuantArgs& a, std::int64_t begin, std::int64_t end, std::int64_t rows, Group* unpacked) {
  const std::int64_t groups = a.k / 32, together = panels_together(a.k);
  for (std::int64_t first = begin; first < end; first += together) {
    const std::int64_t last = first + together < end ? first + together : end;
    for (std::int64_t panel = first; panel < last; ++panel) {
      unpack_panel(a.format, a.panels + panel * a.panel_bytes, a.k, unpacked + (panel - first) * groups);
    }
    for (std::int64_t row = 0; row < rows; row += kTileRows) {
      for (std::int64_t panel = first; panel < last; ++panel) {
        tile<kMinimum>(a, unpacked + (panel - first) * groups, panel, row);
      }
    }
  }
}

void amx_linear(const QuantArgs& a, std::int64_t begin, std::int64_t end, float* scratch) {
  const std::int64_t rows = a.format == QuantFormat::kQ6_K ? 0 : a.rows / kTileRows * kTileRows;
  if (rows > 0) {
    auto* const unpacked = reinterpret_cast<Group*>(scratch);
    configure_tiles();
    if (a.format == QuantFormat::kQ4_1 || a.format == QuantFormat::kQ4_K) {
      tiles<true>(a, begin, end, rows, unpacked);
    } else {
      tiles<false>(a, begin, end, rows, unpacked);
    }
    _tile_release();  // so that a switch of threads needn't save them
  }
  if (rows == a.rows) return;
  QuantArgs rest = a;
  rest.x += rows * (a.k / 32);
  rest.out += rows * a.out_stride;
  rest.rows -= rows;
  kAvx512QuantTable.linear(rest, begin, end, scratch);
}

void amx_linear_rough(const QuantArgs& a, std::int64_t begin, std::int64_t end, float* scratch) {
  kAvx512QuantTable.linear_rough(a, begin, end, scratch);
}

}  // namespace

bool request_amx_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl and XSAVE
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

extern const QuantTable kAmxQuantTable;
const QuantTable kAmxQuantTable = {.name = "amx-int8 and avx512-vnni",
                                   .round = amx_round,
                                   .scratch = amx_scratch,
                                   .linear = amx_linear,
                                   .linear_rough = amx_linear_rough};

}  // namespace levada::kernels
