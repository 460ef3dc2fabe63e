// What: angle_table(), the rotations of a range of positions.
// Owner: none.
// Thread: any.
// Invariant: frequencies are powers of theta in float32, angles float32 products: what serving computes, at every position.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace levada::nn {

// f32 [count, head_dim]: half cosines, half sines of positions [0, count). A table, because many rows share a position and
// sines cost more than their transport.
at::Tensor angle_table(std::int64_t count, std::int64_t head_dim, double theta, at::Device place);

}  // namespace levada::nn
