// What: quantize_rows, activations into the f8 groups that cuBLASLt's block-scaled products take.
// Owner: the caller's memory.
// Thread: any, one at a time per stream; asynchronous, capturable.
// Invariant: each 128 columns of a row share one scale, their largest magnitude / 448; a group of zeros has scale 1.
// Twin: ref_quantize_rows (kernels/ref/ref_rows.h).
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

using device::TensorView;

// x: bf16 [R, K], rows may be strided, K a multiple of 128; out: f8_e4m3 [P, K] contiguous, P >= R, rows past R become
// zeros; scales: f32 [K/128, P]. x = out * scale.
Status quantize_rows(const TensorView& x, const TensorView& out, const TensorView& scales, cudaStream_t stream);

}  // namespace levada::kernels::cuda
