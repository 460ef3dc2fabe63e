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
  // Of matrices: bytes; the forms among them that a plain load would have converted, by name, each once ("Q8_0 Q4_1 F16";
  // empty: none); and what was converted ("F8_E4M3 to bfloat16").
  std::int64_t bytes = 0;
  std::string stored, converted;
};

// A CPU model uses matrices in place when they are stored in `type` already, and with `as_stored` float32, bfloat16 and
// float16 ones whatever `type` is; quantised ones then become QuantMatrices. What cannot be used in place is copied or
// converted to `type`; neighbours of one form are fused. Throws what torch throws.
Weights load_weights(const Checkpoint& checkpoint, at::ScalarType type, bool as_stored, const nn::Backend& backend,
                     kernels::ThreadPool& pool);

// True if as_stored makes a difference: some matrix is quantised, or float16, in a form that the kernels compute with.
bool has_stored_forms(const Checkpoint& checkpoint);

}  // namespace levada::model
