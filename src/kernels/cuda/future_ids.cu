#include "kernels/cuda/device_values.h"
#include "kernels/cuda/future_ids.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void fill_future_ids_kernel(std::int32_t* ids, const std::int32_t* sources, const std::int32_t* samples,
                                       std::int32_t rows) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  wait_for_predecessors();
  if (row < rows && sources[row] >= 0) ids[row] = samples[sources[row]];
}

}  // namespace

Status fill_future_ids(std::int32_t* ids, const std::int32_t* sources, const std::int32_t* samples, std::int32_t rows,
                       cudaStream_t stream) {
  if (rows <= 0) return {};
  const Grid grid{dim3(static_cast<unsigned>((rows + kThreads - 1) / kThreads)), kThreads};
  return launch("fill_future_ids", fill_future_ids_kernel, grid, stream, ids, sources, samples, rows);
}

}  // namespace levada::kernels::cuda
