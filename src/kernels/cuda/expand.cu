#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/expand.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kThreads = 256, kPack = 8;

template <class T>
struct Planes {
  const F8* from[2];  // of keys, of values
  T* to[2];
  const float* scales;
  const std::int32_t* pages;
  std::int64_t pool_pages;
  int page_numbers;
};

// Block (page, keys or values).
template <class T>
__global__ void __launch_bounds__(kThreads) expand_kernel(Planes<T> planes) {
  let_successors_start();
  wait_for_predecessors();
  const std::int64_t page = __ldcg(planes.pages + blockIdx.x);
  const int which = static_cast<int>(blockIdx.y);
  if (page < 0 || page >= planes.pool_pages) return;
  const float scale = __ldcg(planes.scales + page * kPageScales + which);
  const F8* const from = planes.from[which] + page * planes.page_numbers;
  T* const to = planes.to[which] + std::int64_t{blockIdx.x} * planes.page_numbers;
  for (int at = static_cast<int>(threadIdx.x) * kPack; at < planes.page_numbers; at += kThreads * kPack) {
    const Octet<F8> own = load_octet(from + at);
    Pack<T> wide;
#pragma unroll
    for (int i = 0; i < kPack; ++i) wide.at[i] = narrow<T>(widen(own.at[i]) * scale);
    store(to + at, wide);
  }
}

template <class T>
Status launch_expand(const ExpandPages& call, cudaStream_t stream) {
  const std::int64_t pool_pages = call.k_plane.shape[0];
  const Planes<T> planes{{call.k_plane.as<const F8>(), call.v_plane.as<const F8>()},
                         {call.k_out.as<T>(), call.v_out.as<T>()},
                         call.scales.as<const float>(),
                         call.pages.as<const std::int32_t>(),
                         pool_pages,
                         static_cast<int>(call.k_plane.elements() / pool_pages)};
  return launch("expand_pages", expand_kernel<T>, {dim3(static_cast<unsigned>(call.pages.shape[0]), 2), kThreads},
                stream, planes);
}

bool is_pages(const TensorView& view, DType dtype, const TensorView& like) {
  const std::int64_t token = like.shape[2] * like.shape[3];
  return view.rank == 4 && view.place == device::DeviceKind::kCuda && view.dtype == dtype &&
         std::equal(view.shape.begin() + 1, view.shape.begin() + 4, like.shape.begin() + 1) && view.strides[3] == 1 &&
         view.strides[2] == like.shape[3] && view.strides[1] == token && view.strides[0] == token * like.shape[1];
}

}  // namespace

Status expand_pages(const ExpandPages& call, cudaStream_t stream) {
  constexpr const char* kName = "expand_pages";
  const TensorView& k = call.k_plane;
  LEVADA_RETURN_IF_ERROR(expect(is_pages(k, DType::kF8E4M3, k) && is_pages(call.v_plane, DType::kF8E4M3, k) &&
                                    call.v_plane.shape[0] == k.shape[0] && k.shape[0] >= 1 &&
                                    k.elements() / k.shape[0] % kPack == 0,
                                kName, "float8 planes that are alike, with pages of a multiple of 8 numbers"));
  const DType out = call.k_out.dtype;
  LEVADA_RETURN_IF_ERROR(expect(out == DType::kBF16 || out == DType::kF16, kName, "bfloat16 or float16 come out"));
  LEVADA_RETURN_IF_ERROR(expect(call.pages.rank == 1 && call.pages.dtype == DType::kI32 &&
                                    call.pages.place == device::DeviceKind::kCuda && is_pages(call.k_out, out, k) &&
                                    is_pages(call.v_out, out, k) && call.k_out.shape[0] >= call.pages.shape[0] &&
                                    call.v_out.shape[0] >= call.pages.shape[0],
                                kName, "int32 page ids, and room for as many pages"));
  LEVADA_RETURN_IF_ERROR(expect(call.scales.data != nullptr, kName, "scales of each page"));
  LEVADA_RETURN_IF_ERROR(check_scales({1, 1, call.scales}, k, kName));
  if (call.pages.shape[0] == 0) return {};
  return out == DType::kBF16 ? launch_expand<Bf16>(call, stream) : launch_expand<F16>(call, stream);
}

}  // namespace levada::kernels::cuda
