// What: the row kernels of draft training on the CPU, forward and backward: norms, rotation, masked softmax, SwiGLU,
// cross-entropy, AdamW. Everything but the matrix products, which libtorch's BLAS does.
// Owner: none, stateless; all memory is the caller's.
// Thread: the caller's; rows are split over the process's OpenMP team, which is libtorch's own (same libgomp).
// Invariant: a result doesn't depend on the number of threads: each output row is computed by one thread, and sums over
// rows go through a fixed number of partial sums added in a fixed order.
// T is float or Bf16; arithmetic is float32 inside, rounded where the reference rounds its activations.
#pragma once

#include <cstdint>

namespace levada::trainkernels {

// The bits of a bfloat16.
struct Bf16 {
  std::uint16_t bits;
};

struct Norm {
  std::int64_t rows = 0, width = 0;
  float eps = 0;
};

// Per-head norm and rotation of a projection's rows. Row r, head h lies at x[r * stride + h * head_dim]; head h belongs to
// group h / per_group, and the head-major side is [groups, rows, per_group, head_dim] in float32.
struct Heads {
  std::int64_t rows = 0, stride = 0, heads = 0, per_group = 1, head_dim = 0;
  float eps = 0;
  const float* cos_sin = nullptr;  // [rows, head_dim]: half cosines, half sines
};

// One tile of attention scores: rows of whole blocks against a range of context keys, and each row against its own
// block. Scores are [groups, rows, per_group, keys] and [groups, rows, per_group, block]; lse and delta
// [groups, rows, per_group]. Row r sees keys [key_begin[r], key_end[r]) minus first_key, cut to the tile.
struct Tile {
  std::int64_t groups = 0, per_group = 0, rows = 0, block = 0;
  std::int64_t first_key = 0, keys = 0;
  const std::int64_t* key_begin = nullptr;
  const std::int64_t* key_end = nullptr;
  const std::int64_t* own_end = nullptr;  // visible slots of the own block, at least one
  float scale = 1;
};

struct Adam {
  double learning_rate = 0, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double correction1 = 1, correction2 = 1;  // 1 - beta^step
  float grad_scale = 1;
};

// Row r of the logits learns from row teacher_of[r] of the teacher's, over the same `width` tokens. norm as of
// cross_entropy(); mass: the part of the teacher's whole softmax that lies in these tokens. overlap sums the smaller one of
// draft's and teacher's probability, the teacher's taken of its whole softmax.
struct Distillation {
  std::int64_t rows = 0, width = 0;
  const std::int64_t* teacher_of = nullptr;  // [rows]
  const float* teacher_norm = nullptr;       // [teacher rows, 2]
  const float* mass = nullptr;               // [teacher rows]
  const float* coefficient = nullptr;        // [rows]
};

// All kernels for one activation type, in the fastest form this processor runs.
template <class T>
struct Rows {
  // y = w * round(x / rms(x)).
  void (*rms)(const Norm&, const T* x, const T* w, T* y);
  // dx (+)= , dw += .
  void (*rms_backward)(const Norm&, const T* x, const T* w, const T* dy, bool accumulate, T* dx, float* dw);
  void (*norm_rope)(const Heads&, const T* x, const T* w, float* out);
  // dx is written in x's layout; dw += .
  void (*norm_rope_backward)(const Heads&, const T* x, const T* w, const float* dout, T* dx, float* dw);
  // The rotation alone, and the other way round: dx is written in x's layout.
  void (*rope)(const Heads&, const T* x, float* out);
  void (*rope_backward)(const Heads&, const float* dout, T* dx);
  // Between row-major T and head-major float32.
  void (*to_heads)(const Heads&, const T* x, float* out);
  void (*from_heads)(const Heads&, const float* in, T* out);
  // dout head-major, and delta[group, row, head of group] = sum over d of dout * out.
  void (*attention_grad_in)(const Heads&, const T* dout, const T* out, float* dout_heads, float* delta);
  // gate_up [rows, 2 width] -> [rows, width]
  void (*silu_mul)(std::int64_t rows, std::int64_t width, const T* gate_up, T* out);
  void (*silu_mul_backward)(std::int64_t rows, std::int64_t width, const T* gate_up, const T* dout, T* dgate_up);
  // nll and argmax of each row of logits, and its norm: the largest logit and 1 / sum of exp(logit - largest). A rounded
  // log-sum-exp would shift a whole row's probabilities together.
  void (*cross_entropy)(std::int64_t rows, std::int64_t width, const T* logits, const std::int64_t* labels, float* nll,
                        float* norm, std::int64_t* argmax);
  // logits become coefficient * (softmax - onehot).
  void (*cross_entropy_backward)(std::int64_t rows, std::int64_t width, T* logits, const std::int64_t* labels,
                                 const float* norm, const float* coefficient);
  // Cross-entropy against a teacher's whole distribution: logits become coefficient * (softmax - teacher's).
  void (*distill)(const Distillation&, T* logits, const T* teacher, float* loss, float* overlap, std::int64_t* argmax);
  // One AdamW step on masters and moments; `weights` gets the rounded masters.
  void (*adamw)(const Adam&, std::int64_t count, const float* grad, float* master, float* first, float* second,
                T* weights);
};

template <class T>
const Rows<T>& rows();

// Scores become probabilities over both key sets together; hidden keys get 0; lse is that of the scaled scores.
void softmax_tile(const Tile& tile, float* context, float* own, float* lse);
// From raw scores, lse, delta and the gradients of probabilities: context and own become probabilities again,
// dcontext and down the gradients of the raw scores.
void softmax_tile_backward(const Tile& tile, const float* lse, const float* delta, float* context, float* dcontext,
                           float* own, float* down);
// Sum of squares in double, independent of the number of threads.
double sum_of_squares(const float* values, std::int64_t count);

}  // namespace levada::trainkernels
