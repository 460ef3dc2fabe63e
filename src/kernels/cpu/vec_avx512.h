// What: Vec, sixteen floats of AVX-512 (F, BW, DQ, VL): the vocabulary the kernels of cpu/*_impl.h are written in.
// Owner: value type.
// Thread: any.
// Invariant: every operation is one rounding per lane, so a kernel's result doesn't depend on how its loops are tiled;
// sum4 and sum add lanes in the same order: l + (l + 8), then + 4, then + 2, then + 1. Included only by files compiled
// with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/table.h"

#define LEVADA_INLINE [[gnu::always_inline]] static inline

namespace levada::kernels::avx512 {

struct Vec {
  static constexpr int kWidth = 16;
  static constexpr int kTileRows = 6;  // x 4 accumulators fit the registers
  __m512 v;

  LEVADA_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
  LEVADA_INLINE Vec set(float x) { return {_mm512_set1_ps(x)}; }
  LEVADA_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  LEVADA_INLINE Vec load(const Bf16* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  LEVADA_INLINE Vec load(const F16* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  // The first n < kWidth elements, zeros behind; touches no memory behind them.
  LEVADA_INLINE Vec load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(mask(n), p)}; }
  LEVADA_INLINE Vec load_n(const Bf16* p, int n) { return widen(_mm256_maskz_loadu_epi16(mask(n), p)); }
  LEVADA_INLINE Vec load_n(const F16* p, int n) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(n), p))}; }
  LEVADA_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
  LEVADA_INLINE void store_n(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, mask(n), a.v); }
  LEVADA_INLINE Vec first_n(Vec a, int n) { return {_mm512_maskz_mov_ps(mask(n), a.v)}; }
  // Lanes from n on become x.
  LEVADA_INLINE Vec pad_n(Vec a, int n, float x) { return {_mm512_mask_mov_ps(_mm512_set1_ps(x), mask(n), a.v)}; }

  LEVADA_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  LEVADA_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
  LEVADA_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
  LEVADA_INLINE Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  // a * 2^n for whole n with a result in the normal range.
  LEVADA_INLINE Vec scale(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  // a where x >= limit, else 0.
  LEVADA_INLINE Vec keep_if_ge(Vec a, Vec x, Vec limit) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_GE_OQ), a.v)};
  }

  LEVADA_INLINE float first(Vec a) { return _mm512_cvtss_f32(a.v); }
  LEVADA_INLINE float sum(Vec a) { return _mm_cvtss_f32(sum4(a, a, a, a)); }
  LEVADA_INLINE __m128 sum4(Vec a, Vec b, Vec c, Vec d) {
    // Halves, then quarters: one register whose 128-bit lanes belong to a, b, c, d.
    const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x44), _mm512_shuffle_f32x4(a.v, b.v, 0xee));
    const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c.v, d.v, 0x44), _mm512_shuffle_f32x4(c.v, d.v, 0xee));
    const __m512 abcd = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    const __m512 pairs = _mm512_add_ps(abcd, _mm512_permute_ps(abcd, 0x4e));
    const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xb1));
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, sums));
  }
  LEVADA_INLINE float largest(Vec a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

 private:
  LEVADA_INLINE __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  LEVADA_INLINE Vec widen(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
};

}  // namespace levada::kernels::avx512
