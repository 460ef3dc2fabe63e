// What: multiply(), the matrix product of draft training.
// Owner: none.
// Thread: any.
// Invariant: bfloat16 sums are float32. On CUDA float32 sums are float64: Adam divides by |gradient| + 1e-8, so where a
// gradient cancels to 1e-8 beside terms of 0.1, the rounding of cuBLAS's float32 sums moves the weight by percents of a
// step; and a chip's float64 tensor cores are as fast as its float32 units.
#pragma once

#include <ATen/core/Tensor.h>

namespace levada::nn {

// out = a b, or plus + a b. plus may be out, or a row for all rows.
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Tensor& plus = {});

}  // namespace levada::nn
