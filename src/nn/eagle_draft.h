// What: EagleDraft, the forward and backward pass of an EAGLE-3 draft: one layer that rolls out from many tokens at once.
// Owner: the trainer; weights and gradients are the caller's, activations lie in the trainer's scratch.
// Thread: the trainer's.
// Invariant: step k of row t sees the rows up to t as they were in step 0, and of the later steps its own alone: what a chain
// drafted after token t would see. backward() belongs to the last forward(). What is saved is one row per rolled-out token and
// step; norms and activations are computed again. Gradients are summed in float32, whatever the weights' type.
// Maths: docs/models.md, "EAGLE-3 drafts".
#pragma once

#include "nn/eagle_attention.h"

namespace levada::nn {

class EagleDraft {
 public:
  EagleDraft(const EagleGeometry& geometry, TileOps& ops, Scratch& scratch);
  EagleDraft(const EagleDraft&) = delete;

  // features [keys, features] (captured rows) and `table` (the target's embedding) in the weights' type. Returns the normed
  // output rows of all steps, [steps * rows, hidden], a step's one after the other.
  at::Tensor forward(const EagleBatch& batch, const EagleTensors& weights, const at::Tensor& features,
                     const at::Tensor& table);
  // dy: gradient of forward()'s result. gradients (float32) +=, but for lm_head's, which is the objective's.
  void backward(const EagleBatch& batch, const EagleTensors& weights, const EagleTensors& gradients,
                const at::Tensor& features, const at::Tensor& dy);

  // The state that step + 1 takes, [rows, hidden]; for comparison with references.
  at::Tensor state_after(std::int64_t step) const { return steps_[static_cast<std::size_t>(step)].out; }

 private:
  // in, embeddings, qkv: [keys, ..] in step 0, else [rows, ..]. residual: the rows of in.
  struct Saved {
    at::Tensor in, embeddings, qkv, residual, attended, lse, middle, gate_up, out;
  };
  void forward_step(const EagleBatch& batch, const EagleTensors& w, std::int64_t step);
  void backward_mlp(const EagleTensors& w, const EagleTensors& dw, const Saved& saved, const at::Tensor& dx);
  void backward_attention(const EagleBatch& batch, const EagleTensors& w, const EagleTensors& dw, std::int64_t step,
                          const at::Tensor& dx);
  // [norm(embedding), norm(state)], what queries, keys and values are projected from.
  at::Tensor layer_input(const EagleTensors& w, const Saved& saved);
  at::Tensor queries(const EagleBatch& batch, std::int64_t step);
  at::Tensor rows(const std::string& name, std::int64_t count, std::int64_t width);

  const EagleGeometry geometry_;
  TileOps& ops_;
  Scratch& scratch_;
  EagleAttention attention_;
  at::ScalarType type_ = at::kFloat;  // of the weights
  std::vector<Saved> steps_;
};

}  // namespace levada::nn
