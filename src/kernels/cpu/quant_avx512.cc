// The kernels of quant_impl.h for AVX-512 with VNNI; see cpu/table.h for what this file may not use.
#include <immintrin.h>

#include "kernels/cpu/quant_impl.h"

namespace levada::kernels {
namespace {

struct Vnni512 {
  using I = __m512i;
  using F = __m512;
  static constexpr int kLanes = 16;
  // Rows of a tile whose sums fit the registers.
  static constexpr int kRows = 8, kRowsQ4_K = 4, kRowsQ6_K = 2, kRowsRough = 8;
  static constexpr bool kShortNibbles = false;
  static constexpr int kSignedBias = 128;  // vpdpbusd takes its first factor unsigned

  LEVADA_HOT static I set_int(int x) { return _mm512_set1_epi32(x); }
  LEVADA_HOT static F set(float x) { return _mm512_set1_ps(x); }
  LEVADA_HOT static I load(const std::byte* p) { return _mm512_loadu_si512(p); }
  LEVADA_HOT static I load_signed(const std::byte* p) {
    return _mm512_xor_si512(load(p), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  LEVADA_HOT static I low(I pair) { return _mm512_and_si512(pair, _mm512_set1_epi8(15)); }
  LEVADA_HOT static I high(I pair) { return low(_mm512_srli_epi16(pair, 4)); }
  // Bits 2 kPair and up of each byte, moved to bits 4 and 5.
  template <int kPair>
  LEVADA_HOT static I top_bits(I h) {
    const I moved = kPair < 2 ? _mm512_slli_epi16(h, 4 - 2 * (kPair % 2)) : _mm512_srli_epi16(h, 2 * (kPair % 2));
    return _mm512_and_si512(moved, _mm512_set1_epi8(0x30));
  }
  LEVADA_HOT static I dot(I acc, I w, const std::int8_t* x) {
    std::int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(four));
  }
  LEVADA_HOT static I dot_nibbles(I acc, I w, const std::int8_t* x) { return dot(acc, w, x); }
  LEVADA_HOT static I dot_signed(I acc, I w, const std::int8_t* x) { return dot(acc, w, x); }
  LEVADA_HOT static F halves(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  LEVADA_HOT static I bytes(const std::byte* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  LEVADA_HOT static I signed_bytes(const std::byte* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  LEVADA_HOT static I and_int(I a, int mask) { return _mm512_and_si512(a, set_int(mask)); }
  LEVADA_HOT static I or_(I a, I b) { return _mm512_or_si512(a, b); }
  template <int kBits>
  LEVADA_HOT static I left(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  LEVADA_HOT static I right(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  LEVADA_HOT static I add(I a, I b) { return _mm512_add_epi32(a, b); }
  LEVADA_HOT static I times(I a, I b) { return _mm512_mullo_epi32(a, b); }
  LEVADA_HOT static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  LEVADA_HOT static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  LEVADA_HOT static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  LEVADA_HOT static F negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  LEVADA_HOT static void store(float* p, F a, int valid, bool accumulate) {
    const auto mask = static_cast<__mmask16>((1u << valid) - 1);
    const F sum = accumulate ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, p), a) : a;
    _mm512_mask_storeu_ps(p, mask, sum);
  }
};

// Sixteen digits each, and their sums.
struct Digits {
  __m128i of[2];

  // As round_block() of quant_impl.h splits a number, operation by operation.
  LEVADA_HOT Digits(__m512 x, __m512 factor) {
    const __m512 rounder = _mm512_set1_ps(kRounder), base = _mm512_set1_ps(kDigitBase);
    const __m512 whole = _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, factor), rounder), rounder);
    const __m512 first = _mm512_add_ps(_mm512_mul_ps(whole, _mm512_set1_ps(1.0f / kDigitBase)), rounder);
    const __m512 rest = _mm512_sub_ps(whole, _mm512_mul_ps(_mm512_sub_ps(first, rounder), base));
    of[0] = _mm512_cvtepi32_epi8(_mm512_castps_si512(first));
    of[1] = _mm512_cvtepi32_epi8(_mm512_castps_si512(_mm512_add_ps(rest, rounder)));
  }
  LEVADA_HOT std::int32_t sum(int digit) const {
    const __m128i above = _mm_xor_si128(of[digit], _mm_set1_epi8(static_cast<char>(0x80)));  // 128 more, unsigned
    const __m128i halves = _mm_sad_epu8(above, _mm_setzero_si128());
    return _mm_cvtsi128_si32(halves) + _mm_extract_epi32(halves, 2) - 16 * 128;
  }
};

void round_row_512(const float* x, std::int64_t k, RoundedBlock* out) {
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  for (std::int64_t b = 0; b < k / 32; ++b, x += 32, ++out) {
    const __m512 halves[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    const __m512i magnitudes = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(halves[0]), magnitude_bits),
                                                _mm512_and_si512(_mm512_castps_si512(halves[1]), magnitude_bits));
    const float factor = scale_block(__builtin_bit_cast(float, _mm512_reduce_max_epi32(magnitudes)), out);
    for (int half = 0; half < 2; ++half) {
      const Digits digits(halves[half], _mm512_set1_ps(factor));
      for (int digit = 0; digit < 2; ++digit) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out->digit[digit] + 16 * half), digits.of[digit]);
        out->sum[digit][half] = digits.sum(digit);
      }
    }
    sum_block(out);
  }
}

}  // namespace

extern const QuantTable kAvx512QuantTable;
const QuantTable kAvx512QuantTable = {.name = "avx512-vnni",
                                      .round = round_row_512,
                                      .scratch = no_scratch,
                                      .linear = quant_linear<Vnni512>,
                                      .linear_rough = quant_linear_rough<Vnni512>};

}  // namespace levada::kernels
