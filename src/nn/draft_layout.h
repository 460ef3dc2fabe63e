// What: DraftGeometry and DraftLayout: a DFlash draft's tensors by their checkpoint names, in one flat buffer.
// Owner: the trainer; buffers of weights, gradients, masters and moments all have this layout.
// Thread: immutable after construction.
// Invariant: q, k, v of a layer lie one after the other, as do gate and up, so that each group is one matrix as well; the
// flat buffer holds exactly the tensors of the checkpoint, without gaps.
// Names and shapes: docs/formats/checkpoint.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/flat_slices.h"

namespace levada::nn {

struct DraftGeometry {
  std::int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t features = 0;  // width of a context row: captured layers * hidden
  float eps = 1e-6f;
  double rope_theta = 10000;
  std::vector<std::int64_t> windows;  // per layer; 0: full attention
  bool attention_bias = false;

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  std::int64_t per_group() const { return heads / kv_heads; }
};

// Every tensor in the order of the flat buffer.
std::vector<NamedSlice> draft_slices(const DraftGeometry& geometry);
std::int64_t draft_parameters(const DraftGeometry& geometry);

struct DraftLayerTensors {
  at::Tensor input_norm, post_norm, q_norm, k_norm;
  at::Tensor qkv, kv, o;                 // kv: the k and v rows of qkv
  at::Tensor qkv_bias, kv_bias, o_bias;  // undefined without attention_bias
  at::Tensor gate_up, down;
};

struct DraftTensors {
  at::Tensor fc, hidden_norm, norm;
  std::vector<DraftLayerTensors> layers;
};

// Windows on `flat`, which has draft_parameters() elements of any type.
DraftTensors bind_draft(const DraftGeometry& geometry, const at::Tensor& flat);

}  // namespace levada::nn
