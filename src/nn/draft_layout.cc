#include "nn/draft_layout.h"

namespace levada::nn {
namespace {

// Hands out slices of a buffer one after the other.
class Sequence {
 public:
  void add(std::string name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (std::int64_t dimension : shape) count *= dimension;
    slices.push_back({std::move(name), std::move(shape), next_, count});
    next_ += count;
  }
  std::vector<NamedSlice> slices;

 private:
  std::int64_t next_ = 0;
};

void add_layer(Sequence& all, const DraftGeometry& g, const std::string& layer) {
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

// Takes the slices of `flat` in the order in which draft_slices() laid them.
class Cursor {
 public:
  explicit Cursor(const at::Tensor& flat) : flat_(flat) {}
  at::Tensor vector(std::int64_t size) {
    next_ += size;
    return flat_.narrow(0, next_ - size, size);
  }
  at::Tensor matrix(std::int64_t rows, std::int64_t columns) { return vector(rows * columns).view({rows, columns}); }

 private:
  const at::Tensor& flat_;
  std::int64_t next_ = 0;
};

DraftLayerTensors bind_layer(const DraftGeometry& g, Cursor& cursor) {
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
  Sequence all;
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
  Cursor cursor(flat);
  DraftTensors draft;
  draft.fc = cursor.matrix(geometry.hidden, geometry.features);
  for (std::int64_t i = 0; i < geometry.layers; ++i) draft.layers.push_back(bind_layer(geometry, cursor));
  draft.hidden_norm = cursor.vector(geometry.hidden);
  draft.norm = cursor.vector(geometry.hidden);
  return draft;
}

}  // namespace levada::nn
