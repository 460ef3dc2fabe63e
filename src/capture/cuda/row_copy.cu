#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "capture/row_copy.h"

namespace levada::capture {
namespace {

constexpr int kThreads = 128;

__device__ float to_float(float value) { return value; }
__device__ float to_float(__half value) { return __half2float(value); }
__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void from_float(float value, float& out) { out = value; }
__device__ void from_float(float value, __half& out) { out = __float2half_rn(value); }
__device__ void from_float(float value, __nv_bfloat16& out) { out = __float2bfloat16_rn(value); }

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

// One block row per row; each thread takes kCount elements at a time.
template <class From, class To, int kCount>
__global__ void __launch_bounds__(kThreads) copy_rows(RowCopy copy) {
  using In = Pack<From, kCount>;
  using Out = Pack<To, kCount>;
  const std::int64_t at = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount;
  if (at >= copy.width) return;
  const std::int64_t row = blockIdx.x;
  const In in = *reinterpret_cast<const In*>(static_cast<const From*>(copy.from) + row * copy.from_stride + at);
  Out out;
#pragma unroll
  for (int i = 0; i < kCount; ++i) from_float(to_float(in.values[i]), out.values[i]);
  *reinterpret_cast<Out*>(static_cast<To*>(copy.to) + row * copy.to_stride + at) = out;
}

bool divides(int count, const RowCopy& copy) {
  const auto aligned = [&](const void* data, DType dtype) {
    return reinterpret_cast<std::uintptr_t>(data) % (bytes_of(dtype) * static_cast<std::size_t>(count)) == 0;
  };
  return copy.width % count == 0 && copy.from_stride % count == 0 && copy.to_stride % count == 0 &&
         aligned(copy.from, copy.from_dtype) && aligned(copy.to, copy.to_dtype);
}

template <class From, class To>
void launch(const RowCopy& copy, cudaStream_t stream) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  const bool wide = divides(kWide, copy);
  const std::int64_t a_block = std::int64_t{kThreads} * (wide ? kWide : 1);
  const dim3 grid(static_cast<unsigned>(copy.rows), static_cast<unsigned>((copy.width + a_block - 1) / a_block));
  if (wide) {
    copy_rows<From, To, kWide><<<grid, kThreads, 0, stream>>>(copy);
  } else {
    copy_rows<From, To, 1><<<grid, kThreads, 0, stream>>>(copy);
  }
}

template <class From>
int launch_from(const RowCopy& copy, cudaStream_t stream) {
  switch (copy.to_dtype) {
    case DType::kF32: launch<From, float>(copy, stream); break;
    case DType::kBF16: launch<From, __nv_bfloat16>(copy, stream); break;
    case DType::kF16: launch<From, __half>(copy, stream); break;
    default: return cudaErrorInvalidValue;
  }
  return static_cast<int>(cudaGetLastError());
}

}  // namespace
}  // namespace levada::capture

extern "C" __attribute__((visibility("default"))) int levada_capture_rows(const levada::capture::RowCopy& copy,
                                                                          void* stream) {
  using namespace levada;
  const auto native = static_cast<cudaStream_t>(stream);
  if (copy.rows <= 0 || copy.width <= 0) return cudaSuccess;
  switch (copy.from_dtype) {
    case DType::kF32: return capture::launch_from<float>(copy, native);
    case DType::kBF16: return capture::launch_from<__nv_bfloat16>(copy, native);
    case DType::kF16: return capture::launch_from<__half>(copy, native);
    default: return cudaErrorInvalidValue;
  }
}
