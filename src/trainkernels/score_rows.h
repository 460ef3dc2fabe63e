// What: masked softmax of one tile of attention scores, forward and backward.
// Owner: rows_impl.h, which puts them into one table per instruction set.
// Thread: see rows.h.
// Invariant: hidden keys get probability 0 and gradient 0, whatever lay there before.
// LEVADA_ROWS names the namespace: see rows_impl.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trainkernels/row_values.h"

namespace levada::trainkernels::LEVADA_ROWS {

// Calls body(row's place in [groups, rows, per_group], first and end of its visible keys, its visible slots) for every
// row of a tile.
template <class Body>
void each_row(const Tile& t, Body body) {
#pragma omp parallel for collapse(2) schedule(static) if (t.groups * t.rows * t.per_group * (t.keys + t.block) > kGrain)
  for (std::int64_t group = 0; group < t.groups; ++group) {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const std::int64_t begin = std::clamp<std::int64_t>(t.key_begin[r] - t.first_key, 0, t.keys);
      const std::int64_t end = std::clamp<std::int64_t>(t.key_end[r] - t.first_key, begin, t.keys);
      for (std::int64_t head = 0; head < t.per_group; ++head) {
        body((group * t.rows + r) * t.per_group + head, begin, end, t.own_end[r]);
      }
    }
  }
}

// exp(x * scale - top) in place, and its sum.
inline float exponentials(float* x, std::int64_t count, float scale, float top) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const float e = exp_of(x[i] * scale - top);
    x[i] = e;
    sum += e;
  }
  return sum;
}

inline void softmax_tile(const Tile& t, float* context, float* own, float* lse) {
  each_row(t, [&](std::int64_t place, std::int64_t begin, std::int64_t end, std::int64_t own_end) {
    float *c = context + place * t.keys, *o = own + place * t.block;
    const float top = std::max(largest(c + begin, end - begin), largest(o, own_end)) * t.scale;
    const float sum = exponentials(c + begin, end - begin, t.scale, top) + exponentials(o, own_end, t.scale, top);
    const float inverse = 1.f / sum;
    std::fill(c, c + begin, 0.f);
    for (std::int64_t i = begin; i < end; ++i) c[i] *= inverse;
    std::fill(c + end, c + t.keys, 0.f);
    for (std::int64_t i = 0; i < own_end; ++i) o[i] *= inverse;
    std::fill(o + own_end, o + t.block, 0.f);
    lse[place] = top + std::log(sum);
  });
}

inline void score_gradient(float scale, float lse, float delta, std::int64_t begin, std::int64_t end, std::int64_t keys,
                           float* p, float* dp) {
  std::fill(p, p + begin, 0.f);
  std::fill(dp, dp + begin, 0.f);
  for (std::int64_t i = begin; i < end; ++i) {
    p[i] = exp_of(p[i] * scale - lse);
    dp[i] = p[i] * (dp[i] - delta) * scale;
  }
  std::fill(p + end, p + keys, 0.f);
  std::fill(dp + end, dp + keys, 0.f);
}

inline void softmax_tile_backward(const Tile& t, const float* lse, const float* delta, float* context, float* dcontext,
                                  float* own, float* down) {
  each_row(t, [&](std::int64_t place, std::int64_t begin, std::int64_t end, std::int64_t own_end) {
    score_gradient(t.scale, lse[place], delta[place], begin, end, t.keys, context + place * t.keys,
                   dcontext + place * t.keys);
    score_gradient(t.scale, lse[place], delta[place], 0, own_end, t.block, own + place * t.block,
                   down + place * t.block);
  });
}

}  // namespace levada::trainkernels::LEVADA_ROWS
