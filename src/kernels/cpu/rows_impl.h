// What: the row-wise kernels for one instruction set: RMS norm, rotation, SwiGLU, and the exp they and attention share.
// Owner: none.
// Thread: any, on disjoint rows.
// Invariant: a row's bits depend on that row alone. Included once by each avx*_table.cc, which supplies V.
#pragma once

#include "kernels/cpu/table.h"

namespace levada::kernels {
namespace {

// Calls body(i, load, store) over [0, count): whole vectors, then the rest. load(p) and store(p, v) act at element i.
template <class V, class Body>
[[gnu::always_inline]] inline void for_vectors(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + V::kWidth <= count; i += V::kWidth) {
    body(
        [i](const float* p) __attribute__((always_inline)) { return V::load(p + i); },
        [i](float* p, V v) __attribute__((always_inline)) { V::store(p + i, v); });
  }
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    body(
        [ i, rest ](const float* p) __attribute__((always_inline)) { return V::load_n(p + i, rest); },
        [ i, rest ](float* p, V v) __attribute__((always_inline)) { V::store_n(p + i, v, rest); });
  }
}

// e^x to about one unit in the last place; 0 below -87, clamped above 88.3; exactly 1 at 0.
// x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor polynomial of degree 7 (its remainder there is below 6e-9).
template <class V>
[[gnu::always_inline]] inline V exp(V x) {
  const V low = V::set(-87.0f);
  const V bounded = V::min(V::max(x, low), V::set(88.3f));
  const V n = V::round(V::mul(bounded, V::set(1.44269504088896341f)));
  // ln 2 in two parts, the first with so few bits that n times it is exact.
  V r = V::fnma(n, V::set(0.693359375f), bounded);
  r = V::fnma(n, V::set(-2.12194440054690583e-4f), r);
  V p = V::set(1.0f / 5040);
  p = V::fma(p, r, V::set(1.0f / 720));
  p = V::fma(p, r, V::set(1.0f / 120));
  p = V::fma(p, r, V::set(1.0f / 24));
  p = V::fma(p, r, V::set(1.0f / 6));
  p = V::fma(p, r, V::set(0.5f));
  p = V::fma(p, r, V::set(1.0f));
  p = V::fma(p, r, V::set(1.0f));
  return V::keep_if_ge(V::scale(p, n), x, low);
}

template <class V>
void norm_row(const float* x, const float* w, float eps, std::int64_t width, float* out) {
  V squares = V::zero();
  for_vectors<V>(
      width, [&](auto load, auto) __attribute__((always_inline)) {
        const V v = load(x);
        squares = V::fma(v, v, squares);
      });
  const float mean = V::sum(squares) / static_cast<float>(width);
  const V factor = V::set(1.0f / __builtin_sqrtf(mean + eps));
  for_vectors<V>(
      width, [&](auto load, auto store)
                 __attribute__((always_inline)) { store(out, V::mul(V::mul(load(x), factor), load(w))); });
}

template <class V>
void rms_norm(const NormArgs& a, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    for (std::int64_t head = 0; head < a.heads; ++head) {
      norm_row<V>(a.x + row * a.x_row_stride + head * a.x_head_stride, a.w, a.eps, a.width,
                  a.out + row * a.out_row_stride + head * a.out_head_stride);
    }
  }
}

template <class V>
void rope(const RopeArgs& a, std::int64_t row_begin, std::int64_t row_end) {
  const std::int64_t half = a.width / 2;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const float* cosines = a.cos_sin + a.positions[row] * a.cos_sin_stride;
    const float* sines = cosines + half;
    for (std::int64_t head = 0; head < a.heads; ++head) {
      float* first = a.x + row * a.row_stride + head * a.head_stride;
      float* second = first + half;
      for_vectors<V>(
          half, [&](auto load, auto store) __attribute__((always_inline)) {
            const V x = load(first), y = load(second), c = load(cosines), s = load(sines);
            store(first, V::fnma(y, s, V::mul(x, c)));
            store(second, V::fma(x, s, V::mul(y, c)));
          });
    }
  }
}

template <class V>
void silu_mul(const SiluMulArgs& a, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const float* gate = a.gate_up + row * a.gate_up_stride;
    const float* up = gate + a.width;
    float* out = a.out + row * a.out_stride;
    for_vectors<V>(
        a.width, [&](auto load, auto store) __attribute__((always_inline)) {
          const V g = load(gate);
          const V silu = V::div(g, V::add(V::set(1.0f), exp<V>(V::mul(g, V::set(-1.0f)))));
          store(out, V::mul(silu, load(up)));
        });
  }
}

}  // namespace
}  // namespace levada::kernels
