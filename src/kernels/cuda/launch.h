// What: the one way this room launches a kernel, and the checks its launchers share.
// Owner: none.
// Thread: any.
// Invariant: kernels are launched so that they may start before their predecessors in the stream end. Such a kernel
// calls wait_for_predecessors() (device_values.h) before it reads or writes anything that another kernel touches.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "base/status.h"
#include "device/cuda/check.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

using device::check_cuda;
using device::TensorView;

struct Grid {
  dim3 blocks;
  unsigned threads;
  std::size_t shared_bytes = 0;
};

// Whether this process's GPU lets a kernel start before its predecessor's end.
inline bool kernels_overlap() {
  static const bool overlap = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
  }();
  return overlap;
}

template <class... Parameters, class... Arguments>
Status launch(const char* what, void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream,
              Arguments&&... arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = kernels_overlap() ? 1 : 0;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  static_assert(sizeof...(Parameters) == sizeof...(Arguments));
  static_assert((std::is_same_v<Parameters, std::remove_cvref_t<Arguments>> && ...),
                "arguments as the kernel has them");
  return check_cuda(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers), what);
}

// `wanted` says in words what a launcher asks of an argument.
inline Status expect(bool holds, const char* kernel, const char* wanted) {
  if (holds) return {};
  return invalid_argument(std::string(kernel) + ": " + wanted);
}

inline bool is_activation(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32; }

// [rows, width] on the GPU, each row contiguous and on a 16-byte border, so that it is read in 16-byte packs.
inline bool is_packed_rows(const TensorView& view) {
  const auto size = static_cast<std::int64_t>(bytes_of(view.dtype));
  return view.rank == 2 && view.place == device::DeviceKind::kCuda && view.strides[1] == 1 &&
         view.shape[1] * size % 16 == 0 && view.strides[0] * size % 16 == 0 && view.strides[0] >= view.shape[1] &&
         reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.shape[0] < (std::int64_t{1} << 31);
}

inline bool is_vector(const TensorView& view, DType dtype, std::int64_t length) {
  return view.rank == 1 && view.place == device::DeviceKind::kCuda && view.dtype == dtype && view.shape[0] == length &&
         (view.strides[0] == 1 || length <= 1) && view.data != nullptr &&
         reinterpret_cast<std::uintptr_t>(view.data) % bytes_of(dtype) == 0;
}

}  // namespace levada::kernels::cuda
