#include "nn/draft_layout.h"

namespace levada::nn {
namespace {

void add_layer(SliceList& all, const DraftGeometry& g, const std::string& layer) {
  const std::string attention = layer + "self_attn.";
  all.add(attention + "q_proj.weight", {g.q_width(), g.hidden});
  all.add(attention + "k_proj.weight", {g.kv_width(), g.hidden});
  all.add(attention + "v_proj.weight", {g.kv_width(), g.hidden});
  all.add(attention + "o_proj.weight", {g.hidden, g.q_width()});
  all.add(layer + "mlp.gate_proj.weight", {g.intermediate, g.hidden});
  all.add(layer + "mlp.up_proj.weight", {g.intermediate, g.hidden});
  all.add(layer + "mlp.down_proj.weight", {g.hidden, g.intermediate});
  if (g.attention_bias) {
    all.add(attention + "q_proj.bias", {g.q_width()});
    all.add(attention + "k_proj.bias", {g.kv_width()});
    all.add(attention + "v_proj.bias", {g.kv_width()});
    all.add(attention + "o_proj.bias", {g.hidden});
  }
  all.add(layer + "input_layernorm.weight", {g.hidden});
  all.add(layer + "post_attention_layernorm.weight", {g.hidden});
  all.add(attention + "q_norm.weight", {g.head_dim});
  all.add(attention + "k_norm.weight", {g.head_dim});
}

DraftLayerTensors bind_layer(const DraftGeometry& g, FlatCursor& cursor) {
  DraftLayerTensors layer;
  layer.qkv = cursor.matrix(g.qkv_width(), g.hidden);
  layer.kv = layer.qkv.narrow(0, g.q_width(), 2 * g.kv_width());
  layer.o = cursor.matrix(g.hidden, g.q_width());
  layer.gate_up = cursor.matrix(2 * g.intermediate, g.hidden);
  layer.down = cursor.matrix(g.hidden, g.intermediate);
  if (g.attention_bias) {
    layer.qkv_bias = cursor.vector(g.qkv_width());
    layer.kv_bias = layer.qkv_bias.narrow(0, g.q_width(), 2 * g.kv_width());
    layer.o_bias = cursor.vector(g.hidden);
  }
  layer.input_norm = cursor.vector(g.hidden);
  layer.post_norm = cursor.vector(g.hidden);
  layer.q_norm = cursor.vector(g.head_dim);
  layer.k_norm = cursor.vector(g.head_dim);
  return layer;
}

}  // namespace

std::vector<NamedSlice> draft_slices(const DraftGeometry& g) {
  SliceList all;
  all.add("fc.weight", {g.hidden, g.features});
  for (std::int64_t i = 0; i < g.layers; ++i) add_layer(all, g, "layers." + std::to_string(i) + ".");
  all.add("hidden_norm.weight", {g.hidden});
  all.add("norm.weight", {g.hidden});
  return std::move(all.slices);
}

std::int64_t draft_parameters(const DraftGeometry& geometry) {
  const NamedSlice last = draft_slices(geometry).back();
  return last.first + last.count;
}

DraftTensors bind_draft(const DraftGeometry& geometry, const at::Tensor& flat) {
  FlatCursor cursor(flat);
  DraftTensors draft;
  draft.fc = cursor.matrix(geometry.hidden, geometry.features);
  for (std::int64_t i = 0; i < geometry.layers; ++i) draft.layers.push_back(bind_layer(geometry, cursor));
  draft.hidden_norm = cursor.vector(geometry.hidden);
  draft.norm = cursor.vector(geometry.hidden);
  return draft;
}

}  // namespace levada::nn
