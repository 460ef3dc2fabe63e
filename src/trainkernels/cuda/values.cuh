// What: what the device code of this folder shares: values of either type as float32, eight at a time, and sums over a
// warp or a block in a fixed order.
// Owner: none.
// Thread: device code.
// Invariant: a sum's order depends on the launch's shape alone.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "trainkernels/cuda/launchers.h"

namespace levada::trainkernels::cuda {

using bf16 = __nv_bfloat16;

__device__ inline float load(float x) { return x; }
__device__ inline float load(bf16 x) { return __bfloat162float(x); }
__device__ inline void store(float& to, float x) { to = x; }
__device__ inline void store(bf16& to, float x) { to = __float2bfloat16(x); }
template <class T>
__device__ inline float rounded(float x) {
  T stored;
  store(stored, x);
  return load(stored);
}

// Eight neighbours, 16-byte aligned.
template <class T>
struct alignas(16) Eight {
  T at[8];
};
template <class T>
__device__ inline const Eight<T>& eight(const T* x, std::int64_t i) {
  return reinterpret_cast<const Eight<T>*>(x)[i];
}
template <class T>
__device__ inline Eight<T>& eight(T* x, std::int64_t i) {
  return reinterpret_cast<Eight<T>*>(x)[i];
}

__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Starts copying 16 bytes into shared memory, or zeros; part of the copies that the next commit_copies() closes.
__device__ inline void copy_16(void* shared, const void* global, bool there = true) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(global), "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// This thread's committed copies but the last N are there.
template <int N>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory");
}

// Calls body with a null pointer of the device's type for `type`.
template <class Body>
void by_type(Element type, Body body) {
  if (type == Element::kBf16) {
    body(static_cast<bf16*>(nullptr));
  } else {
    body(static_cast<float*>(nullptr));
  }
}
template <class T>
const T* in(const void* memory, T*) {
  return static_cast<const T*>(memory);
}
template <class T>
T* out(void* memory, T*) {
  return static_cast<T*>(memory);
}

inline int blocks_for(std::int64_t work, std::int64_t per_block) {
  return static_cast<int>((work + per_block - 1) / per_block);
}

}  // namespace levada::trainkernels::cuda
