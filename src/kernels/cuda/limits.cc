#include "kernels/cuda/limits.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/linear.h"
#include "kernels/cuda/stream_read.h"

namespace levada::kernels::cuda {
namespace {

constexpr std::size_t kReadBytes = std::size_t{6} << 30;
constexpr std::int64_t kProductWidth = 8192;

Status ok(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return {};
  return internal_error(std::string("CUDA: ") + doing + ": " + cudaGetErrorString(error));
}

struct Free {
  void operator()(void* data) const { cudaFree(data); }
};
using Memory = std::unique_ptr<void, Free>;

Result<Memory> allocate(std::size_t bytes) {
  void* data = nullptr;
  LEVADA_RETURN_IF_ERROR(ok(cudaMalloc(&data, bytes), "memory for the measurement of limits"));
  return Memory(data);
}

// Small bf16 numbers of either sign: zeros would run faster than a model does.
Status fill_random(void* data, std::size_t bytes) {
  std::vector<std::uint16_t> block(std::size_t{4} << 20);
  std::mt19937 bits(1);
  for (std::uint16_t& x : block) x = static_cast<std::uint16_t>(0x3c00u | (bits() & 0x81ffu));
  const std::size_t step = block.size() * sizeof(block[0]);
  for (std::size_t at = 0; at < bytes; at += step) {
    LEVADA_RETURN_IF_ERROR(
        ok(cudaMemcpy(static_cast<char*>(data) + at, block.data(), std::min(step, bytes - at), cudaMemcpyHostToDevice),
           "filling"));
  }
  return {};
}

// Median seconds of a run of `work`, the first runs left out.
Result<double> seconds_of(const std::function<Status()>& work) {
  constexpr int kWarmup = 3;
  std::array<float, 9> times{};
  cudaEvent_t start = nullptr, stop = nullptr;
  LEVADA_RETURN_IF_ERROR(ok(cudaEventCreate(&start), "an event"));
  LEVADA_RETURN_IF_ERROR(ok(cudaEventCreate(&stop), "an event"));
  Status status;
  for (int i = -kWarmup; i < static_cast<int>(times.size()) && status.ok(); ++i) {
    status = ok(cudaEventRecord(start, nullptr), "timing");
    if (status.ok()) status = work();
    if (status.ok()) status = ok(cudaEventRecord(stop, nullptr), "timing");
    if (status.ok()) status = ok(cudaEventSynchronize(stop), "timing");
    if (status.ok() && i >= 0)
      status = ok(cudaEventElapsedTime(&times[static_cast<std::size_t>(i)], start, stop), "timing");
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  LEVADA_RETURN_IF_ERROR(status);
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]) / 1e3;
}

Result<double> read_rate() {
  LEVADA_ASSIGN_OR_RETURN(const Memory memory, allocate(kReadBytes));
  LEVADA_ASSIGN_OR_RETURN(const Memory sum, allocate(sizeof(std::int32_t)));
  LEVADA_RETURN_IF_ERROR(fill_random(memory.get(), kReadBytes));
  const TensorView data =
      TensorView::of(memory.get(), DType::kU8, {static_cast<std::int64_t>(kReadBytes)}, device::DeviceKind::kCuda);
  const TensorView result = TensorView::of(sum.get(), DType::kI32, {1}, device::DeviceKind::kCuda);
  LEVADA_ASSIGN_OR_RETURN(const double seconds, seconds_of([&] { return read_all(data, result, nullptr); }));
  return static_cast<double>(kReadBytes) / seconds;
}

Result<double> product_rate() {
  constexpr std::int64_t n = kProductWidth;
  constexpr std::size_t bytes = static_cast<std::size_t>(n * n) * 2;
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<Linears> linears,
                          Linears::create({.max_rows = n, .dtype = DType::kBF16}));
  std::array<Memory, 3> memory;
  std::array<TensorView, 3> matrix;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    LEVADA_ASSIGN_OR_RETURN(memory[i], allocate(bytes));
    LEVADA_RETURN_IF_ERROR(fill_random(memory[i].get(), bytes));
    matrix[i] = TensorView::of(memory[i].get(), DType::kBF16, {n, n}, device::DeviceKind::kCuda);
  }
  const LinearCall call{.x = matrix[0], .w = matrix[1], .w_scale = {}, .norm = {}, .out = matrix[2]};
  LEVADA_RETURN_IF_ERROR(linears->tune({&call, 1}, nullptr).status());
  LEVADA_ASSIGN_OR_RETURN(const double seconds, seconds_of([&] { return linears->run(call, nullptr); }));
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / seconds;
}

Result<GpuLimits> measure() {
  GpuLimits limits;
  LEVADA_ASSIGN_OR_RETURN(limits.read_bytes_per_s, read_rate());
  LEVADA_ASSIGN_OR_RETURN(limits.flops_per_s, product_rate());
  return limits;
}

}  // namespace
}  // namespace levada::kernels::cuda

extern "C" __attribute__((visibility("default"))) void levada_measure_gpu_limits(
    levada::Result<levada::kernels::cuda::GpuLimits>* result) {
  *result = levada::kernels::cuda::measure();
}
