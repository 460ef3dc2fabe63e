#include "nn/eagle_layout.h"

namespace levada::nn {

std::vector<NamedSlice> eagle_slices(const EagleGeometry& g) {
  const std::string layer = "midlayer.", attention = layer + "self_attn.";
  SliceList all;
  all.add("fc.weight", {g.hidden, g.features});
  all.add(attention + "q_proj.weight", {g.q_width(), 2 * g.hidden});
  all.add(attention + "k_proj.weight", {g.kv_width(), 2 * g.hidden});
  all.add(attention + "v_proj.weight", {g.kv_width(), 2 * g.hidden});
  all.add(attention + "o_proj.weight", {g.hidden, g.q_width()});
  all.add(layer + "mlp.gate_proj.weight", {g.intermediate, g.hidden});
  all.add(layer + "mlp.up_proj.weight", {g.intermediate, g.hidden});
  all.add(layer + "mlp.down_proj.weight", {g.hidden, g.intermediate});
  all.add("lm_head.weight", {g.vocabulary, g.hidden});
  all.add(layer + "input_layernorm.weight", {g.hidden});
  all.add(layer + "hidden_norm.weight", {g.hidden});
  all.add(layer + "post_attention_layernorm.weight", {g.hidden});
  all.add("norm.weight", {g.hidden});
  return std::move(all.slices);
}

std::int64_t eagle_parameters(const EagleGeometry& geometry) {
  const NamedSlice last = eagle_slices(geometry).back();
  return last.first + last.count;
}

EagleTensors bind_eagle(const EagleGeometry& g, const at::Tensor& flat) {
  FlatCursor cursor(flat);
  EagleTensors draft;
  draft.fc = cursor.matrix(g.hidden, g.features);
  draft.qkv = cursor.matrix(g.qkv_width(), 2 * g.hidden);
  draft.o = cursor.matrix(g.hidden, g.q_width());
  draft.gate_up = cursor.matrix(2 * g.intermediate, g.hidden);
  draft.down = cursor.matrix(g.hidden, g.intermediate);
  draft.lm_head = cursor.matrix(g.vocabulary, g.hidden);
  draft.input_norm = cursor.vector(g.hidden);
  draft.hidden_norm = cursor.vector(g.hidden);
  draft.post_norm = cursor.vector(g.hidden);
  draft.norm = cursor.vector(g.hidden);
  return draft;
}

}  // namespace levada::nn
