// The kernels of quant_impl.h for AVX2; see cpu/table.h for what this file may not use.
#include <immintrin.h>

#include "kernels/cpu/quant_impl.h"

namespace levada::kernels {
namespace {

struct Avx2 {
  using I = __m256i;
  using F = __m256;
  static constexpr int kLanes = 8;
  // Rows of a tile whose sums fit the registers.
  static constexpr int kRows = 2, kRowsQ4_K = 2, kRowsQ6_K = 1, kRowsRough = 4;
  static constexpr int kSignedBias = 0;
  // Products with nibbles are summed in 16 bits: eight pairs of at most 2 * 15 * 127.
  static constexpr bool kShortNibbles = true;

  LEVADA_HOT static I set_int(int x) { return _mm256_set1_epi32(x); }
  LEVADA_HOT static F set(float x) { return _mm256_set1_ps(x); }
  LEVADA_HOT static I load(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  LEVADA_HOT static I load_signed(const std::byte* p) { return load(p); }
  LEVADA_HOT static I low(I pair) { return _mm256_and_si256(pair, _mm256_set1_epi8(15)); }
  LEVADA_HOT static I high(I pair) { return low(_mm256_srli_epi16(pair, 4)); }
  // Bits 2 kPair and up of each byte, moved to bits 4 and 5.
  template <int kPair>
  LEVADA_HOT static I top_bits(I h) {
    const I moved = kPair < 2 ? _mm256_slli_epi16(h, 4 - 2 * (kPair % 2)) : _mm256_srli_epi16(h, 2 * (kPair % 2));
    return _mm256_and_si256(moved, _mm256_set1_epi8(0x30));
  }
  LEVADA_HOT static I four(const std::int8_t* x) {
    std::int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
  }
  // Pairs of products fit 16 bits: at most 2 * 128 * 127.
  LEVADA_HOT static I dot_of(I acc, I w, I x) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
  }
  LEVADA_HOT static I dot_nibbles(I acc, I w, const std::int8_t* x) {
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, four(x)));
  }
  LEVADA_HOT static I add_shorts(I acc, I shorts) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)));
  }
  LEVADA_HOT static I dot(I acc, I w, const std::int8_t* x) { return dot_of(acc, w, four(x)); }
  LEVADA_HOT static I dot_signed(I acc, I w, const std::int8_t* x) {
    return dot_of(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(four(x), w));
  }
  LEVADA_HOT static F halves(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  LEVADA_HOT static I bytes(const std::byte* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  LEVADA_HOT static I signed_bytes(const std::byte* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  LEVADA_HOT static I and_int(I a, int mask) { return _mm256_and_si256(a, set_int(mask)); }
  LEVADA_HOT static I or_(I a, I b) { return _mm256_or_si256(a, b); }
  template <int kBits>
  LEVADA_HOT static I left(I a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  LEVADA_HOT static I right(I a) {
    return _mm256_srli_epi32(a, kBits);
  }
  LEVADA_HOT static I add(I a, I b) { return _mm256_add_epi32(a, b); }
  LEVADA_HOT static I times(I a, I b) { return _mm256_mullo_epi32(a, b); }
  LEVADA_HOT static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  LEVADA_HOT static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  LEVADA_HOT static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  LEVADA_HOT static F negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  LEVADA_HOT static void store(float* p, F a, int valid, bool accumulate) {
    const I mask = _mm256_cmpgt_epi32(set_int(valid), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const F sum = accumulate ? _mm256_add_ps(_mm256_maskload_ps(p, mask), a) : a;
    _mm256_maskstore_ps(p, mask, sum);
  }
};

}  // namespace

extern const QuantTable kAvx2QuantTable;
const QuantTable kAvx2QuantTable = {.name = "avx2",
                                    .round = round_row,
                                    .scratch = no_scratch,
                                    .linear = quant_linear<Avx2>,
                                    .linear_rough = quant_linear_rough<Avx2>};

}  // namespace levada::kernels
