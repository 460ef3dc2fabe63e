// What: what this room's own products share on the device: copies to shared memory under way, tensor-core steps.
// Owner: none. Included by .cu files only.
// Thread: device code.
// Invariant: sums are float32. A lane's 16 bytes of a row are eight neighbouring columns, of which a step takes four: the
// columns' order differs from the instruction's, alike for both factors.
#pragma once

#include "kernels/cuda/device_values.h"

namespace levada::kernels::cuda {

__device__ inline void copy_ahead(void* to, const void* from) {
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ inline void end_step() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kMost>
__device__ void wait_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMost) : "memory");
}
// sum[batch row][weight row] += a b over 16 columns.
template <class T>
__device__ void multiply(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                         unsigned b1) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Norm weights times this go into x, so that f16 doesn't overflow where the row is large; the epilogue takes it back.
template <class T>
constexpr float kNormScale = std::is_same_v<T, F16> ? 1.0f / 64 : 1.0f;

}  // namespace levada::kernels::cuda
