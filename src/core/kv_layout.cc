#include "core/kv_layout.h"

#include <algorithm>

#include "base/check.h"

namespace levada::core {

std::int64_t KvPlane::bytes_per_page_per_layer(std::int32_t page_size_tokens) const {
  const std::int64_t elements = std::int64_t{elements_per_token} * page_size_tokens + elements_per_page;
  return elements * static_cast<std::int64_t>(bytes_of(dtype));
}

KvLayout::KvLayout(std::int32_t page_size_tokens, std::vector<KvPlane> planes)
    : page_size_tokens_(page_size_tokens), planes_(std::move(planes)) {
  LEVADA_CHECK(page_size_tokens_ >= 1, "a page holds at least one token");
  LEVADA_CHECK(!planes_.empty(), "a layout lists at least one plane");
  for (const KvPlane& plane : planes_) {
    const bool by_token = plane.elements_per_token > 0, by_page = plane.elements_per_page > 0;
    LEVADA_CHECK(!plane.layers.empty() && by_token != by_page, "a plane has layers and elements");
  }
}

std::int64_t KvLayout::bytes_per_page() const {
  std::int64_t bytes = 0;
  for (const KvPlane& plane : planes_) {
    bytes += plane.bytes_per_page_per_layer(page_size_tokens_) * static_cast<std::int64_t>(plane.layers.size());
  }
  return bytes;
}

std::int32_t KvLayout::pages_for(std::int64_t tokens) const {
  return static_cast<std::int32_t>((tokens + page_size_tokens_ - 1) / page_size_tokens_);
}

bool KvLayout::of_next_token() const {
  return std::any_of(planes_.begin(), planes_.end(), [](const KvPlane& plane) { return plane.of_next_token; });
}

std::string KvLayout::identity(const std::string& group) const {
  std::string text;
  for (const KvPlane& plane : planes_) {
    if (plane.group != group) continue;
    if (text.empty()) text = "page=" + std::to_string(page_size_tokens_);
    text += ";" + plane.group + "/" + plane.name + ":" + std::string(to_string(plane.dtype)) + "x" +
            std::to_string(plane.elements_per_token) + "@";
    for (std::int32_t layer : plane.layers) text += std::to_string(layer) + ",";
    if (plane.elements_per_page > 0) text += "page" + std::to_string(plane.elements_per_page);
    if (plane.of_next_token) text += "+next";
    if (!plane.scaled_by.empty()) text += "*" + plane.scaled_by;
  }
  return text;
}

}  // namespace levada::core
