// What: BlockAttention, attention of draft blocks to their sample's context and to themselves, forward and backward.
// Owner: the draft; made by DraftOps::make_attention().
// Thread: the trainer's.
// Invariant: a row has one softmax over both. No mask exists and no score outlives its tile; backward computes scores again
// from the saved log-sum-exp. So memory is O(rows + keys), whatever their product.
#pragma once

#include "nn/draft_batch.h"

namespace levada::nn {

class BlockAttention {
 public:
  virtual ~BlockAttention() = default;

  // qkv [rows, q + 2 kv] and context_kv [keys, 2 kv] are projections before norm and rotation; out [rows, q];
  // lse f32 [rows * heads] is for backward().
  virtual void forward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const at::Tensor& qkv,
                       const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& lse) = 0;

  // Gradients of qkv and context_kv, given out and its gradient. dw's q_norm and k_norm +=.
  virtual void backward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                        const DraftLayerTensors& dw, const at::Tensor& qkv, const at::Tensor& context_kv,
                        const at::Tensor& out, const at::Tensor& dout, const at::Tensor& lse, const at::Tensor& dqkv,
                        const at::Tensor& dcontext_kv) = 0;

  // Keys after norm and rotation, values: [kv_heads, keys, head_dim]. What forward() attends to; for comparison.
  struct Context {
    at::Tensor k, v;
  };
  virtual Context project_context(const DraftBatch& batch, const DraftLayerTensors& w,
                                  const at::Tensor& context_kv) = 0;
};

}  // namespace levada::nn
