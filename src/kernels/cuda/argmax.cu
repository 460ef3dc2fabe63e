#include "kernels/cuda/argmax.h"
#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kThreads = 1024;

// Larger logit first, then the smaller id: one 64-bit number that orders both.
__device__ inline std::uint64_t key_of(float logit, int id) {
  if (isnan(logit)) logit = -INFINITY;
  const std::uint32_t bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);  // -0 is 0
  const std::uint32_t ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return (static_cast<std::uint64_t>(ordered) << 32) | ~static_cast<std::uint32_t>(id);
}

__device__ inline std::uint64_t warp_max(std::uint64_t key) {
  for (int step = 16; step > 0; step /= 2) {
    const std::uint64_t other = __shfl_xor_sync(0xffffffffu, key, step);
    key = other > key ? other : key;
  }
  return key;
}

__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const float* logits, std::int32_t* tokens, int vocabulary, std::int64_t stride) {
  __shared__ std::uint64_t best[32];
  let_successors_start();
  wait_for_predecessors();
  const float* row = logits + blockIdx.x * stride;
  std::uint64_t key = 0;
  const auto look_at = [&](float logit, int id) {
    const std::uint64_t candidate = key_of(logit, id);
    key = candidate > key ? candidate : key;
  };
  const int packs = reinterpret_cast<std::uintptr_t>(row) % 16 == 0 ? vocabulary / 4 : 0;
#pragma unroll 4
  for (int pack = static_cast<int>(threadIdx.x); pack < packs; pack += kThreads) {
    const float4 four = __ldcg(reinterpret_cast<const float4*>(row) + pack);
    look_at(four.x, 4 * pack);
    look_at(four.y, 4 * pack + 1);
    look_at(four.z, 4 * pack + 2);
    look_at(four.w, 4 * pack + 3);
  }
  for (int id = 4 * packs + static_cast<int>(threadIdx.x); id < vocabulary; id += kThreads)
    look_at(__ldcg(row + id), id);
  key = warp_max(key);
  if (threadIdx.x % 32 == 0) best[threadIdx.x / 32] = key;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  key = warp_max(best[threadIdx.x]);
  if (threadIdx.x == 0) tokens[blockIdx.x] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
}

}  // namespace

Status argmax(const device::TensorView& logits, const device::TensorView& tokens, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(logits.rank == 2 && logits.dtype == DType::kF32 && logits.strides[1] == 1, "argmax",
                                "logits f32 [R, V], rows contiguous"));
  LEVADA_RETURN_IF_ERROR(expect(is_vector(tokens, DType::kI32, logits.shape[0]), "argmax", "tokens i32 [R]"));
  if (logits.shape[0] == 0) return {};
  const Grid grid{dim3(static_cast<unsigned>(logits.shape[0])), kThreads};
  return launch("argmax", argmax_kernel, grid, stream, logits.as<const float>(), tokens.as<std::int32_t>(),
                static_cast<int>(logits.shape[1]), logits.strides[0]);
}

}  // namespace levada::kernels::cuda
