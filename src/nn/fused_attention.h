// What: FusedAttention, block attention in one kernel per pass, between norm and rotation of queries and keys.
// Owner: the draft; kernels and scratch are the trainer's.
// Thread: the trainer's.
// Invariant: queries and keys after rotation are rounded to the weights' type, values are read where the projection left
// them.
#pragma once

#include <cstdint>

#include "nn/block_attention.h"
#include "nn/scratch.h"
#include "trainkernels/fused.h"

namespace levada::nn {

class FusedAttention final : public BlockAttention {
 public:
  FusedAttention(const DraftGeometry& geometry, trainkernels::FusedKernels& kernels, Scratch& scratch)
      : geometry_(geometry), kernels_(kernels), scratch_(scratch) {}

  void forward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const at::Tensor& qkv,
               const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& lse) override;
  void backward(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w, const DraftLayerTensors& dw,
                const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& out, const at::Tensor& dout,
                const at::Tensor& lse, const at::Tensor& dqkv, const at::Tensor& dcontext_kv) override;
  Context project_context(const DraftBatch& batch, const DraftLayerTensors& w, const at::Tensor& context_kv) override;

 private:
  // Norm and rotation of `heads` heads from first_column of x on; their angles.
  at::Tensor rotated(const char* name, const at::Tensor& x, std::int64_t first_column, std::int64_t heads,
                     const at::Tensor& w, const at::Tensor& angles);
  void rotated_backward(const at::Tensor& x, std::int64_t first_column, std::int64_t heads, const at::Tensor& w,
                        const at::Tensor& angles, const at::Tensor& dout, const at::Tensor& dx, const at::Tensor& dw);
  // Everything both passes read. The tensors behind it live in scratch.
  trainkernels::Attention attention_of(const DraftBatch& batch, std::int64_t window, const DraftLayerTensors& w,
                                       const at::Tensor& qkv, const at::Tensor& context_kv, const at::Tensor& lse);

  const DraftGeometry geometry_;
  trainkernels::FusedKernels& kernels_;
  Scratch& scratch_;
};

}  // namespace levada::nn
