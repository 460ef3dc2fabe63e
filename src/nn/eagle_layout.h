// What: EagleGeometry and the layout of an EAGLE-3 draft: its tensors by their checkpoint names, in one flat buffer.
// Owner: the trainer; buffers of weights, gradients, masters and moments all have this layout.
// Thread: immutable after construction.
// Invariant: q, k, v lie one after the other, as do gate and up, so that each group is one matrix as well; the flat buffer
// holds exactly the trained tensors of the checkpoint, without gaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/flat_slices.h"

namespace levada::nn {

struct EagleGeometry {
  std::int64_t hidden = 0, intermediate = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t features = 0;    // width of a captured row: three layers of the target
  std::int64_t vocabulary = 0;  // the draft's own
  std::int64_t steps = 1;       // of the rollout
  float eps = 1e-6f;
  double rope_theta = 10000;

  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
  std::int64_t per_group() const { return heads / kv_heads; }
};

// Every tensor in the order of the flat buffer.
std::vector<NamedSlice> eagle_slices(const EagleGeometry& geometry);
std::int64_t eagle_parameters(const EagleGeometry& geometry);

struct EagleTensors {
  at::Tensor fc;      // [hidden, features]
  at::Tensor qkv, o;  // qkv [.., 2 hidden]: token first, then state
  at::Tensor gate_up, down;
  at::Tensor lm_head;  // [vocabulary, hidden]
  at::Tensor input_norm, hidden_norm, post_norm, norm;
};

// Windows on `flat`, which has eagle_parameters() elements of any type.
EagleTensors bind_eagle(const EagleGeometry& geometry, const at::Tensor& flat);

}  // namespace levada::nn
