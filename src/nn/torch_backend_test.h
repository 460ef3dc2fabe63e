// What: the operations of Backend through libtorch's operators, which tests compare our kernels with.
// Owner: none. Thread: as Backend.
// Invariant: the same formulas (docs/models.md), none of our kernels.
#pragma once

#include "nn/backend.h"

namespace levada::nn {

std::unique_ptr<Backend> make_torch_backend(at::Device place, at::ScalarType activations);

}  // namespace levada::nn
