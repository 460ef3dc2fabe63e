// What: DflashDraft, the forward and backward pass of a DFlash draft over a batch of anchored blocks.
// Owner: the trainer; weights and gradients are the caller's, activations lie in the trainer's scratch.
// Thread: the trainer's.
// Invariant: backward() belongs to the last forward(). What is saved is one row per block slot and per context token and
// layer; norms and activations are computed again. Gradients are summed in float32, whatever the weights' type.
// Maths: docs/models.md, "DFlash drafts".
#pragma once

#include "nn/draft_ops.h"

namespace levada::nn {

class DflashDraft {
 public:
  DflashDraft(DraftGeometry geometry, DraftOps& ops, Scratch& scratch);
  DflashDraft(const DflashDraft&) = delete;

  // features [keys, features] (captured rows of the batch's contexts), embeddings [rows, hidden], both in the weights'
  // type. Returns the normed output rows [rows, hidden].
  at::Tensor forward(const DraftBatch& batch, const DraftTensors& weights, const at::Tensor& features,
                     const at::Tensor& embeddings);
  // dy: gradient of forward()'s result. gradients (float32) +=.
  void backward(const DraftBatch& batch, const DraftTensors& weights, const DraftTensors& gradients,
                const at::Tensor& features, const at::Tensor& dy);

  // What the last forward() computed, for comparison with references.
  at::Tensor context() const { return context_; }                             // [keys, hidden]
  at::Tensor layer_output(std::size_t layer) const { return x_[layer + 1]; }  // [rows, hidden]
  BlockAttention::Context context_keys(const DraftBatch& batch, const DraftTensors& weights, std::size_t layer);

 private:
  struct Saved {
    at::Tensor qkv, context_kv, attended, lse, middle, gate_up;
  };
  void forward_layer(const DraftBatch& batch, const DraftLayerTensors& w, std::size_t layer);
  void backward_attention(const DraftBatch& batch, const DraftLayerTensors& w, const DraftLayerTensors& dw,
                          std::size_t layer, const at::Tensor& dx, const at::Tensor& dcontext);
  void backward_mlp(const DraftLayerTensors& w, const DraftLayerTensors& dw, std::size_t layer, const at::Tensor& dx);
  at::Tensor rows(const std::string& name, std::int64_t count, std::int64_t width);

  DraftGeometry geometry_;
  DraftOps& ops_;
  Scratch& scratch_;
  std::unique_ptr<BlockAttention> attention_;
  at::ScalarType type_ = at::kFloat;  // of the weights
  at::Tensor projected_, context_;    // before and after hidden_norm
  std::vector<at::Tensor> x_;         // the residual stream before each layer and after the last
  std::vector<Saved> saved_;
};

}  // namespace levada::nn
