// What: one pre-norm decoder layer with grouped-query attention and a SwiGLU (llama, qwen3), its weights and workspace.
// Owner: weights live with the model; one workspace serves all layers of one step at a time.
// Thread: the worker's.
// Invariant: h += attn(norm1(h)); h += mlp(norm2(h)). The residual stream stays in GqaWorkspace::hidden; nothing is
// allocated per layer: every view of a step is made once, by GqaWorkspace::resize().
#pragma once

#include "nn/backend.h"

namespace levada::nn {

struct GqaShape {
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  float eps = 0;
};

struct GqaLayer {
  at::Tensor input_norm, post_norm;
  at::Tensor q_norm, k_norm;  // undefined where the architecture has none
  Projection qkv, o, gate_up, down;
};

class GqaWorkspace {
 public:
  GqaWorkspace(const GqaShape& shape, const Backend& backend);
  // Makes the views for a step of `rows` rows; grows the memory when needed and never shrinks it.
  void resize(std::int64_t rows);

  at::Tensor hidden, normed, qkv, attended, gate_up, activated;  // [rows, width]
  at::Tensor q, k, v, rotated, attended_heads;                   // [rows, heads, d] windows; rotated: q and k
 private:
  GqaShape shape_;
  at::TensorOptions options_;
  std::int64_t capacity_ = 0;
  at::Tensor memory_;
};

// Runs the layer over workspace.hidden. k_plane, v_plane: this layer's [pages, page_size, kv_heads, d].
void run_gqa_layer(Backend& backend, const GqaShape& shape, const GqaLayer& layer, const StepInputs& inputs,
                   const at::Tensor& k_plane, const at::Tensor& v_plane, GqaWorkspace& workspace);

}  // namespace levada::nn
