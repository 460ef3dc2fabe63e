#include <algorithm>

#include "kernels/cuda/device_values.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pages.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kThreads = 256, kAhead = 4;
constexpr std::int64_t kPack = 16;

struct Planes {
  PagePlane at[kMaxPagePlanes];
  std::int64_t offset[kMaxPagePlanes];       // in a packed page
  std::int32_t first_layer[kMaxPagePlanes];  // counted over all planes
  std::int32_t count;
  std::int64_t packed_bytes;  // of a page
};

// Block (layer of a plane, page): kAhead packs of each thread are under way at a time.
template <bool kGather>
__global__ void __launch_bounds__(kThreads) pages_kernel(Planes planes, const std::int32_t* pages, std::byte* packed) {
  let_successors_start();
  wait_for_predecessors();
  const int slab = static_cast<int>(blockIdx.x);
  int p = 0;
  while (p + 1 < planes.count && slab >= planes.first_layer[p + 1]) ++p;
  const PagePlane& plane = planes.at[p];
  const std::int64_t layer = slab - planes.first_layer[p], page = __ldcg(pages + blockIdx.y);
  const bool inside = page >= 0 && page < plane.pages;
  if (!inside && !kGather) return;
  auto* const in_pool = reinterpret_cast<int4*>(static_cast<std::byte*>(plane.data) + layer * plane.layer_stride_bytes +
                                                (inside ? page : 0) * plane.page_bytes);
  auto* const in_packed =
      reinterpret_cast<int4*>(packed + blockIdx.y * planes.packed_bytes + planes.offset[p] + layer * plane.page_bytes);
  const int4* const from = kGather ? in_pool : in_packed;
  int4* const to = kGather ? in_packed : in_pool;
  const auto packs = static_cast<int>(plane.page_bytes / kPack);
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += kThreads * kAhead) {
    int4 own[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int at = first + a * kThreads;
      own[a] = at < packs && inside ? __ldcg(from + at) : int4{};
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (const int at = first + a * kThreads; at < packs) to[at] = own[a];
    }
  }
}

bool aligned(const void* at) { return at != nullptr && reinterpret_cast<std::uintptr_t>(at) % kPack == 0; }

template <bool kGather>
Status launch_pages(const char* name, std::span<const PagePlane> planes, const std::int32_t* pages, std::int32_t count,
                    void* packed, cudaStream_t stream) {
  LEVADA_RETURN_IF_ERROR(expect(!planes.empty() && planes.size() <= kMaxPagePlanes, name, "one to eight planes"));
  LEVADA_RETURN_IF_ERROR(expect(count >= 0 && count <= 65535, name, "0 to 65,535 pages"));
  Planes arguments{};
  std::int64_t layers = 0;
  for (const PagePlane& plane : planes) {
    LEVADA_RETURN_IF_ERROR(expect(aligned(plane.data) && plane.layers >= 1 && plane.pages >= 1 &&
                                      plane.page_bytes > 0 && plane.page_bytes % kPack == 0 &&
                                      plane.layer_stride_bytes % kPack == 0 &&
                                      plane.page_bytes < (std::int64_t{1} << 31),
                                  name, "planes of at least one layer and page, in 16-byte packs"));
    arguments.at[arguments.count] = plane;
    arguments.offset[arguments.count] = arguments.packed_bytes;
    arguments.first_layer[arguments.count++] = static_cast<std::int32_t>(layers);
    arguments.packed_bytes += plane.layers * plane.page_bytes;
    layers += plane.layers;
  }
  if (count == 0) return {};
  LEVADA_RETURN_IF_ERROR(expect(pages != nullptr && aligned(packed), name, "page ids, and packed memory on 16 bytes"));
  return launch(name, pages_kernel<kGather>,
                {dim3(static_cast<unsigned>(layers), static_cast<unsigned>(count)), kThreads}, stream, arguments, pages,
                static_cast<std::byte*>(packed));
}

}  // namespace

Status gather_pages(std::span<const PagePlane> planes, const std::int32_t* pages, std::int32_t count, void* packed,
                    cudaStream_t stream) {
  return launch_pages<true>("gather_pages", planes, pages, count, packed, stream);
}

Status scatter_pages(std::span<const PagePlane> planes, const std::int32_t* pages, std::int32_t count,
                     const void* packed, cudaStream_t stream) {
  return launch_pages<false>("scatter_pages", planes, pages, count, const_cast<void*>(packed), stream);
}

}  // namespace levada::kernels::cuda
