// What: multiply(), multiply_wide() and add_weight_gradient(), the matrix products of draft training.
// Owner: none.
// Thread: any.
// Invariant: bfloat16 sums are float32. On CUDA float32 sums are float64: Adam divides by |gradient| + 1e-8, so where a
// gradient cancels to 1e-8 beside terms of 0.1, the rounding of cuBLAS's float32 sums moves the weight by percents of a
// step; and a chip's float64 tensor cores are as fast as its float32 units.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/scratch.h"

namespace levada::nn {

// The same of float32 matrices, summed in float64 wherever it runs: for gradients of weights, where the CPU's libraries, too, round
// what cancels by as much as Adam then amplifies (seen on one kind of processor and not on another).
void multiply_wide(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Tensor& plus = {});

// out = a b, or plus + a b. plus may be out, or a row for all rows.
void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, const at::Tensor& plus = {});

// dw += dy^T x. float32 dw, summed wide where dy is float32; else rounded to dy's type on the way.
void add_weight_gradient(Scratch& scratch, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& dw);

}  // namespace levada::nn
