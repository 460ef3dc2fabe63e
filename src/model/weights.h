// What: the tensors of a model in the form its layers compute with, made from a checked Checkpoint.
// Owner: Weights own what was converted; what is used in place belongs to the checkpoint, which must outlive them.
// Thread: loading splits rows over the pool; afterwards immutable.
// Invariant: tensors are converted one at a time and their file pages dropped, so peak memory stays near the final
// size.
#pragma once

#include "kernels/thread_pool.h"
#include "model/checkpoint.h"
#include "nn/gqa_layer.h"

namespace levada::model {

struct Weights {
  at::Tensor final_norm;
  nn::Projection embedding, head;
  std::vector<nn::GqaLayer> layers;
  // Of matrices: bytes, and the quantised forms among them by name, each once ("Q8_0 Q4_1"; empty: none).
  std::int64_t bytes = 0;
  std::string quantised;
};

// A CPU model uses matrices in place when they are stored in `type` already, and with `as_stored` float32 and bfloat16
// ones whatever `type` is; quantised ones then become QuantMatrices, fused where they are of one form. All others are
// converted into fused tensors of `type`. Throws what torch throws.
Weights load_weights(const Checkpoint& checkpoint, at::ScalarType type, bool as_stored, const nn::Backend& backend,
                     kernels::ThreadPool& pool);

// True if as_stored makes a difference to some matrix: it is in a quantised form that the kernels compute with.
bool has_quantised(const Checkpoint& checkpoint);

}  // namespace levada::model
