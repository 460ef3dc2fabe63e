// What: the bodies of rows.h's kernels; every instruction set compiles them once, in a namespace of its own.
// Owner: rows_avx512.cc, rows_avx2.cc and rows_generic.cc.
// Thread: see rows.h.
// Invariant: plain loops that g++ vectorises; the flags of each file say how wide (CMakeLists.txt).
// LEVADA_ROWS names the namespace.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trainkernels/table.h"

namespace levada::trainkernels::LEVADA_ROWS {

// Elements below which waking the team costs more than it saves.
constexpr std::int64_t kGrain = 1 << 15;

inline float load(float x) { return x; }
inline float load(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
inline void store(float& to, float x) { to = x; }
// To nearest even. A NaN could round to infinity, so it keeps a quiet bit instead.
inline void store(Bf16& to, float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to.bits = static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}
template <class T>
inline float rounded(float x) {
  T stored;
  store(stored, x);
  return load(stored);
}

// e^x to about one ulp for x <= 88, 0 below -87.
inline float exp_of(float x) {
  const float clamped = x < -87.f ? -87.f : (x > 88.f ? 88.f : x);
  const float n = std::rint(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const std::int32_t exponent = static_cast<std::int32_t>(n) << 23;
  const float scaled = std::bit_cast<float>(std::bit_cast<std::int32_t>(p) + exponent);
  return x < -87.f ? 0.f : scaled;
}

template <class T>
inline float inverse_rms(const T* x, std::int64_t width, float eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) sum += load(x[i]) * load(x[i]);
  return 1.f / std::sqrt(sum / static_cast<float>(width) + eps);
}

// Calls body(begin, end, partial) for a fixed partition of the rows; partials [width] are added to out in order.
template <class Body>
void reduce_rows(std::int64_t rows, std::int64_t width, float* out, Body body) {
  constexpr std::int64_t kParts = 16;
  std::vector<float> partials(static_cast<std::size_t>(kParts * width), 0.f);
#pragma omp parallel for schedule(static) if (rows * width > kGrain)
  for (std::int64_t part = 0; part < kParts; ++part) {
    body(rows * part / kParts, rows * (part + 1) / kParts, partials.data() + part * width);
  }
  for (std::int64_t part = 0; part < kParts; ++part) {
    for (std::int64_t i = 0; i < width; ++i) out[i] += partials[static_cast<std::size_t>(part * width + i)];
  }
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

// Where head h of row r begins in the head-major layout.
inline std::int64_t head_major(const Heads& s, std::int64_t r, std::int64_t h) {
  const std::int64_t group = h / s.per_group, within = h % s.per_group;
  return ((group * s.rows + r) * s.per_group + within) * s.head_dim;
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

template <class T>
inline float largest(const T* x, std::int64_t width) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (std::int64_t i = 0; i < width; ++i) top = load(x[i]) > top ? load(x[i]) : top;
  return top;
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
    std::int64_t best = 0;
    while (best + 1 < width && load(row[best]) != top) ++best;
    norm[2 * r] = top;
    norm[2 * r + 1] = static_cast<float>(1 / total);
    nll[r] = static_cast<float>(std::log(total)) + (top - load(row[labels[r]]));
    argmax[r] = best;
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

template <class T>
Rows<T> make_rows() {
  return {rms<T>,
          rms_backward<T>,
          norm_rope<T>,
          norm_rope_backward<T>,
          to_heads<T>,
          from_heads<T>,
          attention_grad_in<T>,
          silu_mul<T>,
          silu_mul_backward<T>,
          cross_entropy<T>,
          cross_entropy_backward<T>,
          adamw<T>};
}

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

inline Table make_table() {
  return {make_rows<float>(), make_rows<Bf16>(), softmax_tile, softmax_tile_backward, sum_of_squares};
}

}  // namespace levada::trainkernels::LEVADA_ROWS
