// What: KvScales, what the numbers of float8 KV planes are multiplied by: one pair for all pages, or one for each.
// Owner: none; `page` is the caller's.
// Thread: value type.
// Invariant: planes of other types have none. A page's scales are written by rope_append() together with the page's first
// token, and read by it for every other token of that page.
// Format of `page`: kernels/page_scales.h.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/page_scales.h"

namespace levada::kernels::cuda {

struct KvScales {
  float k = 1, v = 1;
  TensorView page;  // f32 [pages, kPageScales], or without data: k and v serve all pages
  bool by_page() const { return page.data != nullptr; }
};

// What a launcher over planes like `plane` asks of them.
inline Status check_scales(const KvScales& scales, const TensorView& plane, const char* kernel) {
  const bool f8 = plane.dtype == DType::kF8E4M3, ones = scales.k == 1 && scales.v == 1;
  LEVADA_RETURN_IF_ERROR(
      expect(f8 || (ones && !scales.by_page()), kernel, "scales other than 1 belong to float8 planes"));
  LEVADA_RETURN_IF_ERROR(expect(scales.k > 0 && scales.v > 0, kernel, "scales are above 0"));
  if (!scales.by_page()) return {};
  return expect(ones && scales.page.rank == 2 && scales.page.dtype == DType::kF32 &&
                    scales.page.place == device::DeviceKind::kCuda && scales.page.shape[0] == plane.shape[0] &&
                    scales.page.shape[1] == kPageScales && scales.page.strides[1] == 1 &&
                    scales.page.strides[0] == kPageScales,
                kernel, "scales by page are float32 [pages, 4], contiguous, and k and v are 1 then");
}

}  // namespace levada::kernels::cuda
