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

// What one launch does: the rows of all its copies one after the other, rows [first[i], first[i + 1]) of copy i.
struct Launch {
  RowCopies batch;
  std::int32_t first[kRowCopies + 1];
};
static_assert(sizeof(Launch) <= 4096, "a kernel's parameters");

// One block a row, more of them (y) where a row is long; each thread takes kCount elements.
template <class From, class To, int kCount>
__global__ void __launch_bounds__(kThreads) copy_rows(const __grid_constant__ Launch launch) {
  using In = Pack<From, kCount>;
  using Out = Pack<To, kCount>;
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = launch.batch.count;  // the copy is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (block < launch.first[middle] ? high : low) = middle;
  }
  const RowCopy& copy = launch.batch.copies[low];
  const std::int64_t at = (std::int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount;
  if (at >= copy.width) return;
  const std::int64_t row = block - launch.first[low];
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
void launch(const RowCopies& batch, cudaStream_t stream) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To));
  Launch all{batch, {}};
  bool wide = true;
  for (int i = 0; i < batch.count; ++i) {
    wide = wide && divides(kWide, batch.copies[i]);
    all.first[i + 1] = all.first[i] + static_cast<std::int32_t>(batch.copies[i].rows);
  }
  const std::int64_t a_block = std::int64_t{kThreads} * (wide ? kWide : 1);
  const dim3 grid(static_cast<unsigned>(all.first[batch.count]),
                  static_cast<unsigned>((batch.copies[0].width + a_block - 1) / a_block));
  if (wide) {
    copy_rows<From, To, kWide><<<grid, kThreads, 0, stream>>>(all);
  } else {
    copy_rows<From, To, 1><<<grid, kThreads, 0, stream>>>(all);
  }
}

template <class From>
int launch_from(const RowCopies& batch, cudaStream_t stream) {
  switch (batch.copies[0].to_dtype) {
    case DType::kF32: launch<From, float>(batch, stream); break;
    case DType::kBF16: launch<From, __nv_bfloat16>(batch, stream); break;
    case DType::kF16: launch<From, __half>(batch, stream); break;
    default: return cudaErrorInvalidValue;
  }
  return static_cast<int>(cudaGetLastError());
}

}  // namespace
}  // namespace levada::capture

extern "C" __attribute__((visibility("default"))) int levada_capture_rows(const levada::capture::RowCopies& batch,
                                                                          void* stream) {
  using namespace levada;
  const auto native = static_cast<cudaStream_t>(stream);
  if (batch.count <= 0 || batch.copies[0].width <= 0) return cudaSuccess;
  switch (batch.copies[0].from_dtype) {
    case DType::kF32: return capture::launch_from<float>(batch, native);
    case DType::kBF16: return capture::launch_from<__nv_bfloat16>(batch, native);
    case DType::kF16: return capture::launch_from<__half>(batch, native);
    default: return cudaErrorInvalidValue;
  }
}
