#include "nn/gqa_layer.h"

#include <ATen/ops/empty.h>

#include <cmath>

namespace levada::nn {

GqaWorkspace::GqaWorkspace(const GqaShape& shape, const Backend& backend)
    : shape_(shape), options_(at::TensorOptions().dtype(backend.activation_type()).device(backend.place())) {}

void GqaWorkspace::resize(std::int64_t rows) {
  if (hidden.defined() && hidden.size(0) == rows) return;
  const std::int64_t q_width = shape_.heads * shape_.head_dim, kv_width = shape_.kv_heads * shape_.head_dim;
  const std::int64_t widths[] = {shape_.hidden, shape_.hidden,           q_width + 2 * kv_width,
                                 q_width,       2 * shape_.intermediate, shape_.intermediate};
  at::Tensor* const tensors[] = {&hidden, &normed, &qkv, &attended, &gate_up, &activated};
  if (rows > capacity_) {
    std::int64_t total = 0;
    for (std::int64_t width : widths) total += width;
    for (at::Tensor* tensor : tensors) *tensor = at::Tensor();
    memory_ = at::Tensor();  // the old memory goes before the new comes
    memory_ = at::empty({total * rows}, options_);
    capacity_ = rows;
  }
  std::int64_t first = 0;
  for (std::size_t i = 0; i < std::size(widths); ++i) {
    *tensors[i] = memory_.narrow(0, first, widths[i] * rows).view({rows, widths[i]});
    first += widths[i] * rows;
  }
  auto heads_of = [&](const at::Tensor& from, std::int64_t first_column, std::int64_t heads) {
    return from.narrow(1, first_column, heads * shape_.head_dim).unflatten(1, {heads, shape_.head_dim});
  };
  q = heads_of(qkv, 0, shape_.heads);
  k = heads_of(qkv, q_width, shape_.kv_heads);
  v = heads_of(qkv, q_width + kv_width, shape_.kv_heads);
  rotated = heads_of(qkv, 0, shape_.heads + shape_.kv_heads);
  attended_heads = heads_of(attended, 0, shape_.heads);
}

void run_gqa_layer(Backend& backend, const GqaShape& shape, const GqaLayer& layer, const StepInputs& inputs,
                   const at::Tensor& k_plane, const at::Tensor& v_plane, GqaWorkspace& w) {
  backend.rms_norm(w.hidden, layer.input_norm, shape.eps, w.normed);
  backend.linear(w.normed, layer.qkv, w.qkv, false);
  if (layer.q_norm.defined()) {
    backend.rms_norm_heads(w.q, layer.q_norm, shape.eps);
    backend.rms_norm_heads(w.k, layer.k_norm, shape.eps);
  }
  backend.rope(inputs, w.rotated);
  backend.write_kv(inputs, w.k, w.v, k_plane, v_plane);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  backend.paged_attention(inputs, w.q, k_plane, v_plane, scale, w.attended_heads);
  backend.linear(w.attended, layer.o, w.hidden, true);

  backend.rms_norm(w.hidden, layer.post_norm, shape.eps, w.normed);
  backend.linear(w.normed, layer.gate_up, w.gate_up, false);
  backend.silu_mul(w.gate_up, w.activated);
  backend.linear(w.activated, layer.down, w.hidden, true);
}

}  // namespace levada::nn
