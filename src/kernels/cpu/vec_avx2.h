// What: Vec, eight floats of AVX2 + FMA: the vocabulary the kernels of cpu/*_impl.h are written in.
// Owner: value type.
// Thread: any.
// Invariant: every operation is one rounding per lane, so a kernel's result doesn't depend on how its loops are tiled;
// sum4 and sum add lanes in the same order: l + (l + 4), then + 2, then + 1. Included only by files compiled with
// -mavx2 -mfma -mf16c.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/table.h"

#define LEVADA_INLINE [[gnu::always_inline]] static inline

namespace levada::kernels::avx2 {

struct Vec {
  static constexpr int kWidth = 8;
  static constexpr int kTileRows = 3;  // x 4 accumulators fit the registers
  __m256 v;

  LEVADA_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
  LEVADA_INLINE Vec set(float x) { return {_mm256_set1_ps(x)}; }
  LEVADA_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  LEVADA_INLINE Vec load(const Bf16* p) { return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  LEVADA_INLINE Vec load(const F16* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  // The first n < kWidth elements, zeros behind; touches no memory behind them.
  LEVADA_INLINE Vec load_n(const float* p, int n) { return {_mm256_maskload_ps(p, mask(n))}; }
  template <class T>
  LEVADA_INLINE Vec load_n(const T* p, int n) {
    alignas(16) T copy[kWidth] = {};
    for (int i = 0; i < n; ++i) copy[i] = p[i];
    return load(copy);
  }
  LEVADA_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }
  LEVADA_INLINE void store_n(float* p, Vec a, int n) { _mm256_maskstore_ps(p, mask(n), a.v); }
  LEVADA_INLINE Vec first_n(Vec a, int n) { return {_mm256_and_ps(a.v, _mm256_castsi256_ps(mask(n)))}; }
  // Lanes from n on become x.
  LEVADA_INLINE Vec pad_n(Vec a, int n, float x) {
    return {_mm256_blendv_ps(_mm256_set1_ps(x), a.v, _mm256_castsi256_ps(mask(n)))};
  }

  LEVADA_INLINE Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
  LEVADA_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
  LEVADA_INLINE Vec round(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  // a * 2^n for whole n with a result in the normal range.
  LEVADA_INLINE Vec scale(Vec a, Vec n) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n.v), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v), bits))};
  }
  // a where x >= limit, else 0.
  LEVADA_INLINE Vec keep_if_ge(Vec a, Vec x, Vec limit) {
    return {_mm256_and_ps(a.v, _mm256_cmp_ps(x.v, limit.v, _CMP_GE_OQ))};
  }

  LEVADA_INLINE float first(Vec a) { return _mm256_cvtss_f32(a.v); }
  LEVADA_INLINE float sum(Vec a) { return _mm_cvtss_f32(sum4(a, a, a, a)); }
  LEVADA_INLINE __m128 sum4(Vec a, Vec b, Vec c, Vec d) {
    const __m128 a4 = fold(a), b4 = fold(b), c4 = fold(c), d4 = fold(d);
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a4, b4), _mm_unpackhi_ps(a4, b4));
    const __m128 cd = _mm_add_ps(_mm_unpacklo_ps(c4, d4), _mm_unpackhi_ps(c4, d4));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
  }
  LEVADA_INLINE float largest(Vec a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

 private:
  LEVADA_INLINE __m256i mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  LEVADA_INLINE Vec widen(__m128i bits) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
  }
  LEVADA_INLINE __m128 fold(Vec a) { return _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1)); }
};

}  // namespace levada::kernels::avx2
