// What: root-mean-square norms over rows and over heads, the latter with rotation, forward and backward.
// Owner: rows_impl.h, which puts them into one table per instruction set.
// Thread: see rows.h.
// Invariant: a weight's gradient is summed by reduce_rows(), so that it does not depend on the number of threads.
// LEVADA_ROWS names the namespace: see rows_impl.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "trainkernels/head_rows.h"
#include "trainkernels/row_values.h"

namespace levada::trainkernels::LEVADA_ROWS {

template <class T>
inline float inverse_rms(const T* x, std::int64_t width, float eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) sum += load(x[i]) * load(x[i]);
  return 1.f / std::sqrt(sum / static_cast<float>(width) + eps);
}

template <class T>
void rms(const Norm& n, const T* x, const T* w, T* y) {
#pragma omp parallel for schedule(static) if (n.rows * n.width > kGrain)
  for (std::int64_t r = 0; r < n.rows; ++r) {
    const T* row = x + r * n.width;
    const float inverse = inverse_rms(row, n.width, n.eps);
    for (std::int64_t i = 0; i < n.width; ++i) {
      store(y[r * n.width + i], rounded<T>(load(row[i]) * inverse) * load(w[i]));
    }
  }
}

template <class T>
void rms_backward(const Norm& n, const T* x, const T* w, const T* dy, bool accumulate, T* dx, float* dw) {
  reduce_rows(n.rows, n.width, dw, [&](std::int64_t begin, std::int64_t end, float* partial) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * n.width;
      const T* grad = dy + r * n.width;
      T* to = dx + r * n.width;
      const float inverse = inverse_rms(row, n.width, n.eps);
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (std::int64_t i = 0; i < n.width; ++i) dot += load(row[i]) * load(grad[i]) * load(w[i]);
      const float back = dot * inverse * inverse * inverse / static_cast<float>(n.width);
      for (std::int64_t i = 0; i < n.width; ++i) {
        const float value = load(row[i]), gradient = load(grad[i]);
        partial[i] += gradient * (value * inverse);
        const float through = gradient * load(w[i]) * inverse - value * back;
        store(to[i], accumulate ? load(to[i]) + through : through);
      }
    }
  });
}

template <class T>
void norm_rope(const Heads& s, const T* x, const T* w, float* out) {
  const std::int64_t half = s.head_dim / 2;
#pragma omp parallel for schedule(static) if (s.rows * s.stride > kGrain)
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const float *cos = s.cos_sin + r * s.head_dim, *sin = cos + half;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const T* head = x + r * s.stride + h * s.head_dim;
      float* to = out + head_major(s, r, h);
      const float inverse = inverse_rms(head, s.head_dim, s.eps);
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = load(head[i]) * inverse * load(w[i]);
        const float b = load(head[half + i]) * inverse * load(w[half + i]);
        to[i] = a * cos[i] - b * sin[i];
        to[half + i] = b * cos[i] + a * sin[i];
      }
    }
  }
}

template <class T>
void norm_rope_backward(const Heads& s, const T* x, const T* w, const float* dout, T* dx, float* dw) {
  const std::int64_t half = s.head_dim / 2;
  reduce_rows(s.rows, s.head_dim, dw, [&](std::int64_t begin, std::int64_t end, float* partial) {
    std::vector<float> scratch(static_cast<std::size_t>(s.head_dim));
    float* turned = scratch.data();
    for (std::int64_t r = begin; r < end; ++r) {
      const float *cos = s.cos_sin + r * s.head_dim, *sin = cos + half;
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const T* head = x + r * s.stride + h * s.head_dim;
        const float* grad = dout + head_major(s, r, h);
        T* to = dx + r * s.stride + h * s.head_dim;
        for (std::int64_t i = 0; i < half; ++i) {  // the rotation the other way round
          turned[i] = grad[i] * cos[i] + grad[half + i] * sin[i];
          turned[half + i] = grad[half + i] * cos[i] - grad[i] * sin[i];
        }
        const float inverse = inverse_rms(head, s.head_dim, s.eps);
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t i = 0; i < s.head_dim; ++i) dot += load(head[i]) * turned[i] * load(w[i]);
        const float back = dot * inverse * inverse * inverse / static_cast<float>(s.head_dim);
        for (std::int64_t i = 0; i < s.head_dim; ++i) {
          const float value = load(head[i]);
          partial[i] += turned[i] * value * inverse;
          store(to[i], turned[i] * load(w[i]) * inverse - value * back);
        }
      }
    }
  });
}

}  // namespace levada::trainkernels::LEVADA_ROWS
