// What: AdamW and the sum of squares over flat buffers.
// Owner: rows_impl.h, which puts them into one table per instruction set.
// Thread: see rows.h.
// Invariant: neither depends on the number of threads.
// LEVADA_ROWS names the namespace: see rows_impl.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "trainkernels/row_values.h"

namespace levada::trainkernels::LEVADA_ROWS {

template <class T>
void adamw(const Adam& a, std::int64_t count, const float* grad, float* master, float* first, float* second,
           T* weights) {
  const auto step = static_cast<float>(a.learning_rate / a.correction1);
  const auto root = static_cast<float>(1.0 / std::sqrt(a.correction2));
  // In float, 1 - 0.999f is off by 1e-5.
  const auto beta1 = static_cast<float>(a.beta1), rest1 = static_cast<float>(1 - a.beta1);
  const auto beta2 = static_cast<float>(a.beta2), rest2 = static_cast<float>(1 - a.beta2);
  const auto eps = static_cast<float>(a.eps);
  const auto decay = static_cast<float>(1 - a.learning_rate * a.weight_decay);
#pragma omp parallel for schedule(static) if (count > kGrain)
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * a.grad_scale;
    first[i] = first[i] * beta1 + g * rest1;
    second[i] = second[i] * beta2 + g * g * rest2;
    master[i] = master[i] * decay - step * first[i] / (std::sqrt(second[i]) * root + eps);
    store(weights[i], master[i]);
  }
}

inline double sum_of_squares(const float* values, std::int64_t count) {
  constexpr std::int64_t kPiece = 8192;
  const std::int64_t pieces = (count + kPiece - 1) / kPiece;
  std::vector<double> sums(static_cast<std::size_t>(pieces));
#pragma omp parallel for schedule(static) if (count > kGrain)
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t end = std::min(count, (piece + 1) * kPiece);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = piece * kPiece; i < end; ++i) sum += values[i] * values[i];
    sums[static_cast<std::size_t>(piece)] = sum;
  }
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

}  // namespace levada::trainkernels::LEVADA_ROWS
