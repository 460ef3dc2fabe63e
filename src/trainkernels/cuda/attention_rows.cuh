// What: who sees whom, and where a head of a row or key lies: shared by the attention kernels.
// Owner: none.
// Thread: device code.
// Invariant: the same rule as fused_reference.cc's: context keys [key_begin, key_end), and own_end rows of the own block.
#pragma once

#include "trainkernels/cuda/values.cuh"

namespace levada::trainkernels::cuda {

struct Range {
  int begin = 0, end = 0;
  __device__ bool has(int key) const { return key >= begin && key < end; }
};

__device__ inline Range seen_by(const Attention& a, int set, std::int64_t row) {
  if (set == 0) return {static_cast<int>(a.key_begin[row]), static_cast<int>(a.key_end[row])};
  const std::int64_t own = row / a.block * a.block;
  return {static_cast<int>(own), static_cast<int>(own + a.own_end[row])};
}

template <class T>
__device__ inline T* at(const void* memory, std::int64_t row, std::int64_t stride, std::int64_t column) {
  return static_cast<T*>(const_cast<void*>(memory)) + row * stride + column;
}

}  // namespace levada::trainkernels::cuda
