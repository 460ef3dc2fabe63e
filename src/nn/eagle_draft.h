// What: EagleDraft, the forward pass of an EAGLE-3 draft: one layer that rolls out from every token of a sequence at once.
// Owner: the caller's; tensors are borrowed.
// Thread: one.
// Invariant: step k of row t sees the rows up to t as they were in step 0, and of the later steps its own alone: what a chain
// drafted after token t would see. Device-generic; torch exceptions pass through.
// Maths: docs/models.md, "EAGLE-3 drafts".
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace levada::nn {

struct EagleGeometry {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  double eps = 1e-6, rope_theta = 10000;
};

// By their checkpoint names, "midlayer." and "self_attn." left out.
struct EagleTensors {
  at::Tensor fc, norm, lm_head;  // [H, 3 Ht], [H], [draft vocabulary, H]
  at::Tensor input_layernorm, hidden_norm, post_attention_layernorm;
  at::Tensor q_proj, k_proj, v_proj, o_proj;  // the former three [.., 2 H]: token first, then state
  at::Tensor gate_proj, up_proj, down_proj;
};

class EagleDraft {
 public:
  EagleDraft(const EagleGeometry& geometry, EagleTensors tensors);

  struct Step {
    at::Tensor hidden;  // [rows, H], before the last norm: what the next step takes
    at::Tensor logits;  // [rows, draft vocabulary]
  };
  // features [rows, 3 Ht]: the target's captured states. What step 0 takes.
  at::Tensor start(const at::Tensor& features);
  // `embeddings` [rows, H]: of the token that follows each row by one more than in the step before. `hidden`: what start() or
  // the step before gave. Rows from `tokens` on are padding: nobody sees them as keys of step 0.
  Step step(const at::Tensor& embeddings, const at::Tensor& hidden, std::int64_t tokens);

 private:
  at::Tensor attend(const at::Tensor& q, std::int64_t tokens) const;

  const EagleGeometry geometry_;
  const EagleTensors tensors_;
  std::vector<at::Tensor> keys_, values_;  // of every step, [heads, rows, head_dim]
};

}  // namespace levada::nn
