#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/quantize.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kWarps = 8, kGroup = 128, kOwn = kGroup / 32;
constexpr float kLargest = 448;

// A warp per group.
__global__ void __launch_bounds__(kWarps * 32)
    quantize_kernel(const Bf16* x, std::int64_t x_stride, int rows, int padded, int groups, F8* out, float* scales) {
  let_successors_start();
  wait_for_predecessors();
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(blockIdx.x);
  const int group = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (group >= groups) return;
  float own[kOwn]{}, largest = 0;
  for (int e = 0; e < kOwn && row < rows; ++e) {
    own[e] = widen(__ldcg(x + row * x_stride + group * kGroup + lane * kOwn + e));
    largest = fmaxf(largest, fabsf(own[e]));
  }
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  const float scale = largest > 0 ? largest / kLargest : 1;
  F8* const to = out + (static_cast<std::int64_t>(row) * groups + group) * kGroup + lane * kOwn;
  for (int e = 0; e < kOwn; ++e) to[e] = narrow<F8>(own[e] / scale);
  if (lane == 0) scales[static_cast<std::int64_t>(group) * padded + row] = scale;
}

}  // namespace

Status quantize_rows(const TensorView& x, const TensorView& out, const TensorView& scales, cudaStream_t stream) {
  constexpr const char* kName = "quantize_rows";
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(x) && x.dtype == DType::kBF16 && x.shape[1] % kGroup == 0, kName,
                                "x is bfloat16 [R, K], K a multiple of 128"));
  LEVADA_RETURN_IF_ERROR(expect(is_packed_rows(out) && out.dtype == DType::kF8E4M3 && out.shape[0] >= x.shape[0] &&
                                    out.shape[1] == x.shape[1] && out.strides[0] == out.shape[1],
                                kName, "out is float8 [P, K], at least x's rows, contiguous"));
  const std::int64_t groups = x.shape[1] / kGroup;
  LEVADA_RETURN_IF_ERROR(expect(scales.rank == 2 && scales.place == device::DeviceKind::kCuda &&
                                    scales.dtype == DType::kF32 && scales.shape[0] == groups &&
                                    scales.shape[1] == out.shape[0] && scales.strides[0] == out.shape[0],
                                kName, "scales are float32 [K/128, P]"));
  if (out.shape[0] == 0) return {};
  return launch(
      kName, quantize_kernel,
      {dim3(static_cast<unsigned>(out.shape[0]), static_cast<unsigned>((groups + kWarps - 1) / kWarps)), kWarps * 32},
      stream, x.as<const Bf16>(), std::int64_t{x.strides[0]}, static_cast<int>(x.shape[0]),
      static_cast<int>(out.shape[0]), static_cast<int>(groups), out.as<F8>(), scales.as<float>());
}

}  // namespace levada::kernels::cuda
