// What: PagePlane, the bytes of one plane of a KV pool in all its layers, as copies of whole pages see them.
// Owner: borrows; the pool's memory must outlive every use, asynchronous ones included.
// Thread: value type.
// Invariant: page p of layer l is the page_bytes at data + l * layer_stride_bytes + p * page_bytes.
// Packed pages: page after page; in each plane after plane, layer after layer.
#pragma once

#include <cstdint>
#include <span>

namespace levada::kernels {

struct PagePlane {
  void* data = nullptr;
  std::int64_t layers = 0, pages = 0;
  std::int64_t page_bytes = 0, layer_stride_bytes = 0;
};

// Of one packed page.
inline std::int64_t packed_page_bytes(std::span<const PagePlane> planes) {
  std::int64_t bytes = 0;
  for (const PagePlane& plane : planes) bytes += plane.layers * plane.page_bytes;
  return bytes;
}

}  // namespace levada::kernels
