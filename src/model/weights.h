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
  at::Tensor embedding, final_norm;
  nn::Projection head;
  std::vector<nn::GqaLayer> layers;
};

// A CPU model uses matrices in place when they are stored in `type` already; others are converted into fused tensors.
// Throws what torch throws.
Weights load_weights(const Checkpoint& checkpoint, at::ScalarType type, const nn::Backend& backend,
                     kernels::ThreadPool& pool);

}  // namespace levada::model
