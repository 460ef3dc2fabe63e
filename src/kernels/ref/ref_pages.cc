#include "kernels/ref/ref_pages.h"

#include <cstring>

namespace levada::kernels {
namespace {

// visit(bytes in the pool or null, offset in the packed pages, count) for every piece, in packed order.
template <class Visit>
void for_each_piece(std::span<const PagePlane> planes, std::span<const std::int32_t> pages, Visit visit) {
  std::int64_t offset = 0;
  for (const std::int32_t page : pages) {
    for (const PagePlane& plane : planes) {
      for (std::int64_t layer = 0; layer < plane.layers; ++layer) {
        auto* const at = static_cast<std::byte*>(plane.data) + layer * plane.layer_stride_bytes;
        visit(page >= 0 && page < plane.pages ? at + page * plane.page_bytes : nullptr, offset, plane.page_bytes);
        offset += plane.page_bytes;
      }
    }
  }
}

}  // namespace

void ref_gather_pages(std::span<const PagePlane> planes, std::span<const std::int32_t> pages, void* packed) {
  for_each_piece(planes, pages, [&](const std::byte* from, std::int64_t offset, std::int64_t bytes) {
    auto* const to = static_cast<std::byte*>(packed) + offset;
    if (from == nullptr) {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  });
}

void ref_scatter_pages(std::span<const PagePlane> planes, std::span<const std::int32_t> pages, const void* packed) {
  for_each_piece(planes, pages, [&](std::byte* to, std::int64_t offset, std::int64_t bytes) {
    const auto* const from = static_cast<const std::byte*>(packed) + offset;
    if (to != nullptr) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  });
}

}  // namespace levada::kernels
