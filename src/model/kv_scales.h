// What: the scales of a float8 KV cache that a Hugging Face checkpoint may carry: one for the keys and one for the values
// of each layer. A cache holds number / scale.
// Owner: value type.
// Thread: any.
// Invariant: every layer has them or none has; they are finite and between 1e-30 and 1e30.
// Names, after "model.layers.N.self_attn.": k_scale and v_scale, or k_proj.k_scale and v_proj.v_scale, or kv_scale for both.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "files/tensor_source.h"

namespace levada::model {

struct LayerKvScales {
  float k = 1, v = 1;
};

struct StoredKvScales {
  std::vector<LayerKvScales> layers;  // empty: the checkpoint has none
  std::vector<std::string> tensors;   // that they come from
};

// kDataLoss naming the tensor that is missing, said twice, misshapen or out of range. `demanded`: none is a fault, too.
Result<StoredKvScales> read_kv_scales(const files::TensorSource& source, std::int64_t layers, bool demanded,
                                      const std::string& file);

}  // namespace levada::model
