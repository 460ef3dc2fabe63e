// What: SwiGLU, cross-entropy and distillation over rows, forward and backward.
// Owner: rows_impl.h, which puts them into one table per instruction set.
// Thread: see rows.h.
// Invariant: a row's total is summed in double over pieces: a float sum over a large vocabulary loses digits.
// LEVADA_ROWS names the namespace: see rows_impl.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainkernels/row_values.h"

namespace levada::trainkernels::LEVADA_ROWS {

template <class T>
void silu_mul(std::int64_t rows, std::int64_t width, const T* gate_up, T* out) {
#pragma omp parallel for schedule(static) if (rows * width > kGrain)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T *gate = gate_up + r * 2 * width, *up = gate + width;
    for (std::int64_t i = 0; i < width; ++i) {
      const float g = load(gate[i]);
      store(out[r * width + i], rounded<T>(g / (1.f + exp_of(-g))) * load(up[i]));
    }
  }
}

template <class T>
void silu_mul_backward(std::int64_t rows, std::int64_t width, const T* gate_up, const T* dout, T* dgate_up) {
#pragma omp parallel for schedule(static) if (rows * width > kGrain)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T *gate = gate_up + r * 2 * width, *up = gate + width;
    T *dgate = dgate_up + r * 2 * width, *dup = dgate + width;
    for (std::int64_t i = 0; i < width; ++i) {
      const float g = load(gate[i]), u = load(up[i]), gradient = load(dout[r * width + i]);
      const float sigmoid = 1.f / (1.f + exp_of(-g));
      store(dup[i], gradient * g * sigmoid);
      store(dgate[i], gradient * u * sigmoid * (1.f + g * (1.f - sigmoid)));
    }
  }
}

// Sum of value(i) for i < width: in pieces, as a float sum over a large vocabulary loses digits.
template <class Value>
double in_pieces(std::int64_t width, Value value) {
  double total = 0;
  for (std::int64_t first = 0; first < width; first += 1024) {
    const std::int64_t end = std::min(width, first + 1024);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = first; i < end; ++i) sum += value(i);
    total += sum;
  }
  return total;
}

// The first place of the row's largest value.
template <class T>
std::int64_t place_of(const T* row, std::int64_t width, float top) {
  std::int64_t best = 0;
  while (best + 1 < width && load(row[best]) != top) ++best;
  return best;
}

template <class T>
void cross_entropy(std::int64_t rows, std::int64_t width, const T* logits, const std::int64_t* labels, float* nll,
                   float* norm, std::int64_t* argmax) {
#pragma omp parallel for schedule(static) if (rows * width > kGrain)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * width;
    const float top = largest(row, width);
    double total = 0;  // in pieces: a float sum over a large vocabulary loses digits
    for (std::int64_t first = 0; first < width; first += 1024) {
      const std::int64_t end = std::min(width, first + 1024);
      float sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t i = first; i < end; ++i) sum += exp_of(load(row[i]) - top);
      total += sum;
    }
    norm[2 * r] = top;
    norm[2 * r + 1] = static_cast<float>(1 / total);
    nll[r] = static_cast<float>(std::log(total)) + (top - load(row[labels[r]]));
    argmax[r] = place_of(row, width, top);
  }
}

template <class T>
void cross_entropy_backward(std::int64_t rows, std::int64_t width, T* logits, const std::int64_t* labels,
                            const float* norm, const float* coefficient) {
#pragma omp parallel for schedule(static) if (rows * width > kGrain)
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * width;
    const float top = norm[2 * r], scale = coefficient[r] * norm[2 * r + 1];
    const float at_label = scale * exp_of(load(row[labels[r]]) - top) - coefficient[r];
    for (std::int64_t i = 0; i < width; ++i) store(row[i], scale * exp_of(load(row[i]) - top));
    store(row[labels[r]], at_label);
  }
}

template <class T>
void distill(const Distillation& d, T* logits, const T* teacher, float* loss, float* overlap, std::int64_t* argmax) {
#pragma omp parallel for schedule(static) if (d.rows * d.width > kGrain)
  for (std::int64_t r = 0; r < d.rows; ++r) {
    const std::int64_t from = d.teacher_of[r];
    T* row = logits + r * d.width;
    const T* wanted = teacher + from * d.width;
    const float top = largest(row, d.width), teacher_top = d.teacher_norm[2 * from];
    const float teacher_scale = d.teacher_norm[2 * from + 1], whole_scale = teacher_scale * d.mass[from];
    const double total = in_pieces(d.width, [=](std::int64_t i) { return exp_of(load(row[i]) - top); });
    const float scale = static_cast<float>(1 / total), coefficient = d.coefficient[r];
    argmax[r] = place_of(row, d.width, top);
    overlap[r] = static_cast<float>(in_pieces(d.width, [=](std::int64_t i) {
      return std::min(scale * exp_of(load(row[i]) - top), whole_scale * exp_of(load(wanted[i]) - teacher_top));
    }));
    // -sum p log q = log of the draft's total - sum p (logit - top), as the teacher's p sum to one.
    loss[r] = static_cast<float>(std::log(total) - in_pieces(d.width, [=](std::int64_t i) {
                                   return teacher_scale * exp_of(load(wanted[i]) - teacher_top) * (load(row[i]) - top);
                                 }));
    for (std::int64_t i = 0; i < d.width; ++i) {
      const float q = scale * exp_of(load(row[i]) - top);
      store(row[i], coefficient * (q - teacher_scale * exp_of(load(wanted[i]) - teacher_top)));
    }
  }
}

}  // namespace levada::trainkernels::LEVADA_ROWS
