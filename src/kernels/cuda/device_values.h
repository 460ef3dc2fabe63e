// What: what this room's kernels share on the device: number conversions, 16-byte packs, warp sums, launch overlap.
// Owner: none. Included by .cu files only.
// Thread: device code.
// Invariant: arithmetic is float32; narrowing rounds to nearest even, to f8 with saturation.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

namespace levada::kernels::cuda {

using Bf16 = __nv_bfloat16;
using F16 = __half;
using F8 = __nv_fp8_e4m3;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bf16 x) { return __bfloat162float(x); }
__device__ inline float widen(F16 x) { return __half2float(x); }
__device__ inline float widen(F8 x) { return static_cast<float>(x); }

template <class T>
__device__ T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline F16 narrow<F16>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline F8 narrow<F8>(float x) {
  return F8(x);
}

// What one thread moves at a time.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

// Past L1: a kernel that started early may find lines there from before its predecessor wrote them.
template <class T>
__device__ inline Pack<T> load_fresh(const T* from) {
  const int4 bits = __ldcg(reinterpret_cast<const int4*>(from));
  return *reinterpret_cast<const Pack<T>*>(&bits);
}

// Into L2 alone, which no later write leaves stale: allowed before the predecessors have ended.
__device__ inline void bring_near(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// Eight numbers, whatever their size: what a lane reads of a key or a value.
template <class T>
struct alignas(8 * sizeof(T)) Octet {
  T at[8];
};
template <class T>
__device__ inline Octet<T> load_octet(const T* from) {
  using Bits = std::conditional_t<sizeof(T) == 1, int2, int4>;
  static_assert(sizeof(Bits) == sizeof(Octet<T>));
  const Bits bits = __ldcg(reinterpret_cast<const Bits*>(from));
  return *reinterpret_cast<const Octet<T>*>(&bits);
}

template <class T>
__device__ inline void store(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

__device__ inline float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__device__ inline float silu(float x) { return x / (1.0f + __expf(-x)); }

// Kernels of one stream overlap from sm_90 on (launch.h); before, each starts when its predecessor has ended.
// All that earlier kernels of the stream wrote is visible after this.
__device__ inline void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel of the stream may be placed on multiprocessors that have room; it waits there for this one's end.
__device__ inline void let_successors_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace levada::kernels::cuda
