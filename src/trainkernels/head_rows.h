// What: rows to and from the head-major layout of attention, rotated or not.
// Owner: rows_impl.h, which puts them into one table per instruction set.
// Thread: see rows.h.
// Invariant: head_major() alone says where a head lies.
// LEVADA_ROWS names the namespace: see rows_impl.h.
#pragma once

#include <cstdint>

#include "trainkernels/row_values.h"

namespace levada::trainkernels::LEVADA_ROWS {

// Where head h of row r begins in the head-major layout.
inline std::int64_t head_major(const Heads& s, std::int64_t r, std::int64_t h) {
  const std::int64_t group = h / s.per_group, within = h % s.per_group;
  return ((group * s.rows + r) * s.per_group + within) * s.head_dim;
}

template <class T>
void to_heads(const Heads& s, const T* x, float* out) {
#pragma omp parallel for schedule(static) if (s.rows * s.stride > kGrain)
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const T* head = x + r * s.stride + h * s.head_dim;
      float* to = out + head_major(s, r, h);
      for (std::int64_t i = 0; i < s.head_dim; ++i) to[i] = load(head[i]);
    }
  }
}

template <class T>
void from_heads(const Heads& s, const float* in, T* out) {
#pragma omp parallel for schedule(static) if (s.rows * s.stride > kGrain)
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const float* head = in + head_major(s, r, h);
      T* to = out + r * s.stride + h * s.head_dim;
      for (std::int64_t i = 0; i < s.head_dim; ++i) store(to[i], head[i]);
    }
  }
}

template <class T>
void rope(const Heads& s, const T* x, float* out) {
  const std::int64_t half = s.head_dim / 2;
#pragma omp parallel for schedule(static) if (s.rows * s.stride > kGrain)
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float *cos = s.cos_sin + r * s.head_dim, *sin = cos + half;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const T* head = x + r * s.stride + h * s.head_dim;
      float* to = out + head_major(s, r, h);
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = load(head[i]), b = load(head[half + i]);
        to[i] = a * cos[i] - b * sin[i];
        to[half + i] = b * cos[i] + a * sin[i];
      }
    }
  }
}

template <class T>
void rope_backward(const Heads& s, const float* dout, T* dx) {
  const std::int64_t half = s.head_dim / 2;
#pragma omp parallel for schedule(static) if (s.rows * s.stride > kGrain)
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float *cos = s.cos_sin + r * s.head_dim, *sin = cos + half;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const float* grad = dout + head_major(s, r, h);
      T* to = dx + r * s.stride + h * s.head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        store(to[i], grad[i] * cos[i] + grad[half + i] * sin[i]);
        store(to[half + i], grad[half + i] * cos[i] - grad[i] * sin[i]);
      }
    }
  }
}

template <class T>
void attention_grad_in(const Heads& s, const T* dout, const T* out, float* dout_heads, float* delta) {
#pragma omp parallel for schedule(static) if (s.rows * s.stride > kGrain)
  for (std::int64_t r = 0; r < s.rows; ++r) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t from = r * s.stride + h * s.head_dim, to = head_major(s, r, h);
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < s.head_dim; ++i) {
        const float gradient = load(dout[from + i]);
        dout_heads[to + i] = gradient;
        dot += gradient * load(out[from + i]);
      }
      delta[to / s.head_dim] = dot;
    }
  }
}

}  // namespace levada::trainkernels::LEVADA_ROWS
