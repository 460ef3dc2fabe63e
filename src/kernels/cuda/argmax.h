// What: greedy choice on CUDA: the largest logit of each row.
// Owner: memory is the caller's.
// Thread: any, one at a time per stream; capturable in a graph.
// Invariant: ties go to the lowest id, NaN counts as -inf, as in kernels/sampling.h; a row of nothing else gives 0.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

// logits: f32 [R, V]; tokens: device i32 [R].
Status argmax(const device::TensorView& logits, const device::TensorView& tokens, cudaStream_t stream);

}  // namespace levada::kernels::cuda
