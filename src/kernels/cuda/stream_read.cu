#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream_read.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kThreads = 512, kLoads = 8;
constexpr unsigned kBlocks = 132 * 4;  // four for each multiprocessor of an H200; on other GPUs more or fewer, in turn

__global__ void __launch_bounds__(kThreads) read_kernel(const int4* data, std::int64_t packs, std::int32_t* result) {
  let_successors_start();
  wait_for_predecessors();
  int word = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads * kLoads;
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads * kLoads; first < packs; first += stride) {
    int4 got[kLoads]{};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const std::int64_t at = first + i * kThreads + threadIdx.x;
      if (at < packs) got[i] = __ldcs(data + at);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) word ^= got[i].x ^ got[i].y ^ got[i].z ^ got[i].w;
  }
  for (int step = 16; step > 0; step /= 2) word ^= __shfl_xor_sync(0xffffffffu, word, step);
  if (threadIdx.x % 32 == 0) atomicXor(result, word);
}

}  // namespace

Status read_all(const device::TensorView& data, const device::TensorView& result, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(is_vector(data, DType::kU8, data.shape[0]) && data.shape[0] % 16 == 0 &&
                                    reinterpret_cast<std::uintptr_t>(data.data) % 16 == 0,
                                "read_all", "data is uint8, in 16-byte packs"));
  LEVADA_RETURN_IF_ERROR(expect(is_vector(result, DType::kI32, 1), "read_all", "result is int32 [1]"));
  return launch("read_all", read_kernel, {dim3(kBlocks), kThreads}, stream, data.as<const int4>(),
                std::int64_t{data.shape[0] / 16}, result.as<std::int32_t>());
}

}  // namespace levada::kernels::cuda
