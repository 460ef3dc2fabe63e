// What: DraftOps, what a draft's training step is made of besides matrix products: forward and backward of norms,
// attention, SwiGLU and cross-entropy, and AdamW. TileOps, those whose attention is matrix products around a softmax.
// Owner: the trainer.
// Thread: the trainer's.
// Invariant: the same formulas whatever the backend: trainkernels on the CPU, liblevada_cuda.so's kernels on CUDA,
// libtorch's operators for comparison. Outputs are memory the caller owns; "+=" says what accumulates. Torch exceptions
// pass through.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "nn/block_attention.h"
#include "nn/scratch.h"

namespace levada::nn {

struct AdamStep {
  std::int64_t step = 1;  // 1-based
  double learning_rate = 0, weight_decay = 0;
  double grad_scale = 1;
};

class DraftOps {
 public:
  virtual ~DraftOps() = default;
  virtual at::Device place() const = 0;
  // Operations and scratch must outlive it.
  virtual std::unique_ptr<BlockAttention> make_attention(const DraftGeometry& geometry, Scratch& scratch) = 0;

  virtual void rms(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& y) = 0;
  // dx = (or += if accumulate), dw +=
  virtual void rms_backward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy, float eps, bool accumulate,
                            const at::Tensor& dx, const at::Tensor& dw) = 0;
  // gate_up [rows, 2 width]
  virtual void silu_mul(const at::Tensor& gate_up, const at::Tensor& out) = 0;
  virtual void silu_mul_backward(const at::Tensor& gate_up, const at::Tensor& dout, const at::Tensor& dgate_up) = 0;

  // Per row of logits [rows, vocabulary]: negative log likelihood (f32), argmax (int64), and norm f32 [rows, 2]: the
  // largest logit and 1 / sum of exp(logit - largest).
  virtual void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& nll,
                             const at::Tensor& norm, const at::Tensor& argmax) = 0;
  // logits become coefficient[row] * (softmax - onehot(label)).
  virtual void cross_entropy_backward(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& norm,
                                      const at::Tensor& coefficient) = 0;
  // One after the other.
  virtual void cross_entropy_both(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& nll,
                                  const at::Tensor& norm, const at::Tensor& argmax, const at::Tensor& coefficient) {
    cross_entropy(logits, labels, nll, norm, argmax);
    cross_entropy_backward(logits, labels, norm, coefficient);
  }

  // One step on flat f32 masters and moments (betas 0.9, 0.999, eps 1e-8); weights = masters, rounded.
  virtual void adamw(const AdamStep& step, const at::Tensor& grad, const at::Tensor& master, const at::Tensor& first,
                     const at::Tensor& second, const at::Tensor& weights) = 0;
  virtual double sum_of_squares(const at::Tensor& values) = 0;
};

// One tile of attention rows (whole blocks) against context keys [first_key, first_key + keys). Per row, int64 [rows].
struct ScoreTile {
  std::int64_t first_key = 0;
  at::Tensor key_begin, key_end, own_end;
  float scale = 1;
};

// Head-major tensors are [groups, rows, heads per group, head_dim] in score_type(); row-major ones [rows, heads, head_dim]
// in the weights' type, possibly strided in the row.
// What rows of a draft learn from a teacher's distributions; trainkernels/rows.h, Distillation.
struct Lesson {
  at::Tensor teacher, teacher_norm, mass;  // raw logits [teacher rows, width], f32 [teacher rows, 2] and [teacher rows]
  at::Tensor teacher_of, coefficient;      // int64 and f32 [rows]
};

class TileOps : public DraftOps {
 public:
  std::unique_ptr<BlockAttention> make_attention(const DraftGeometry& geometry, Scratch& scratch) final;
  virtual at::ScalarType score_type() const = 0;

  // cos_sin: f32 [rows, head_dim], half cosines, half sines.
  virtual void norm_rope(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& cos_sin,
                         const at::Tensor& out) = 0;
  // dw +=
  virtual void norm_rope_backward(const at::Tensor& x, const at::Tensor& w, float eps, const at::Tensor& cos_sin,
                                  const at::Tensor& dout, const at::Tensor& dx, const at::Tensor& dw) = 0;
  // The rotation alone.
  virtual void rope(const at::Tensor& x, const at::Tensor& cos_sin, const at::Tensor& out) = 0;
  virtual void rope_backward(const at::Tensor& cos_sin, const at::Tensor& dout, const at::Tensor& dx) = 0;
  virtual void to_heads(const at::Tensor& x, const at::Tensor& out) = 0;
  virtual void from_heads(const at::Tensor& in, const at::Tensor& out) = 0;
  // dout_heads = dout; delta [groups, rows, per group] = sum over head_dim of dout * out.
  virtual void attention_grad_in(const at::Tensor& dout, const at::Tensor& out, const at::Tensor& dout_heads,
                                 const at::Tensor& delta) = 0;

  // Raw scores become probabilities over context and own block together, 0 where hidden. context [G, rows, per, keys],
  // own [G, rows, per, block], lse [G, rows, per].
  virtual void softmax(const ScoreTile& tile, const at::Tensor& context, const at::Tensor& own,
                       const at::Tensor& lse) = 0;
  // Raw scores become probabilities again, and dcontext, down (gradients of probabilities) those of raw scores.
  virtual void softmax_backward(const ScoreTile& tile, const at::Tensor& lse, const at::Tensor& delta,
                                const at::Tensor& context, const at::Tensor& dcontext, const at::Tensor& own,
                                const at::Tensor& down) = 0;

  // Per row: cross-entropy with the teacher and overlap of the two (f32), argmax (int64); logits [rows, width] become their
  // gradient, coefficient[row] * (softmax - teacher's softmax).
  virtual void distill(const Lesson& lesson, const at::Tensor& logits, const at::Tensor& loss,
                       const at::Tensor& overlap, const at::Tensor& argmax) = 0;
};

std::unique_ptr<DraftOps> make_cpu_draft_ops();
// libtorch operators on `place`; the CPU is allowed, for comparison in tests.
std::unique_ptr<DraftOps> make_torch_draft_ops(at::Device place);
// The kernels of liblevada_cuda.so. kUnavailable: the module isn't there. REQUIRES: load_torch_cuda() succeeded.
Result<std::unique_ptr<DraftOps>> make_cuda_draft_ops(at::Device place);

}  // namespace levada::nn
