#include "model/paged_kv_pool.h"

#include <numeric>

#include "kernels/page_scales.h"

namespace levada::model {

namespace {

std::vector<std::int32_t> first_layers(std::int64_t count) {
  std::vector<std::int32_t> layers(static_cast<std::size_t>(count));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

}  // namespace

core::KvLayout gqa_layout(const ModelConfig& config, DType dtype, std::int32_t page_size_tokens, KvScaling scaling,
                          const std::optional<DraftPlanes>& draft) {
  const std::vector<std::int32_t> layers = first_layers(config.layers);
  const auto elements = static_cast<std::int32_t>(config.kv_heads * config.head_dim);
  const char* const scaled_by = scaling == KvScaling::kPage ? "kv_scale" : scaling == KvScaling::kLayer ? "layer" : "";
  std::vector<core::KvPlane> planes;
  for (const char* name : {"k", "v"}) {
    planes.push_back({name, core::kTargetGroup, dtype, elements, layers, 0, scaled_by});
  }
  if (scaling == KvScaling::kPage) {
    planes.push_back({scaled_by, core::kTargetGroup, DType::kF32, 0, layers, kernels::kPageScales, ""});
  }
  for (const char* name : {"draft_k", "draft_v"}) {
    if (!draft.has_value()) break;
    const auto width = static_cast<std::int32_t>(draft->room.kv_width);
    planes.push_back({name, core::kDraftGroup, draft->dtype, width, first_layers(draft->room.layers), 0, "",
                      draft->room.kind == DraftKind::kEagle3});
  }
  return core::KvLayout(page_size_tokens, std::move(planes));
}

Result<std::unique_ptr<PagedKvPool>> PagedKvPool::make(const core::KvLayout& layout, std::int32_t pages,
                                                       device::Device& device) {
  std::unique_ptr<PagedKvPool> pool(new PagedKvPool(layout, pages));
  LEVADA_RETURN_IF_ERROR(pool->allocate(device));
  return pool;
}

Status PagedKvPool::allocate(device::Device& device) {
  if (pages_ < 1) return invalid_argument("a KV pool needs at least one page, got " + std::to_string(pages_));
  const std::int64_t wanted = layout_.bytes_per_page() * pages_, available = device.free_bytes();
  if (wanted > available) {
    return resource_exhausted("the KV pool needs " + std::to_string(wanted) + " bytes for " + std::to_string(pages_) +
                              " pages and " + std::to_string(available) + " bytes are available on " + device.name());
  }
  place_ = device.kind();
  LEVADA_ASSIGN_OR_RETURN(stream_, device.make_stream());
  for (const core::KvPlane& plane : layout_.planes()) {
    const std::int64_t bytes = plane.bytes_per_page_per_layer(layout_.page_size_tokens()) *
                               static_cast<std::int64_t>(plane.layers.size()) * pages_;
    LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<device::DeviceBuffer> buffer,
                            device.allocate(static_cast<std::size_t>(bytes)));
    buffers_.push_back(std::move(buffer));
  }
  return {};
}

device::TensorView PagedKvPool::plane(int plane, int layer) const {
  const core::KvPlane& described = layout_.planes()[static_cast<std::size_t>(plane)];
  LEVADA_CHECK(layer >= 0 && static_cast<std::size_t>(layer) < described.layers.size(), "a layer that owns this plane");
  const std::int64_t bytes_per_layer = described.bytes_per_page_per_layer(layout_.page_size_tokens()) * pages_;
  auto* first = static_cast<std::byte*>(buffers_[static_cast<std::size_t>(plane)]->data()) + layer * bytes_per_layer;
  if (described.elements_per_page > 0) {
    return device::TensorView::of(first, described.dtype, {pages_, described.elements_per_page}, place_);
  }
  return device::TensorView::of(first, described.dtype,
                                {pages_, layout_.page_size_tokens(), described.elements_per_token}, place_);
}

std::vector<kernels::PagePlane> PagedKvPool::page_planes() const {
  std::vector<kernels::PagePlane> planes;
  for (std::size_t p = 0; p < buffers_.size(); ++p) {
    const core::KvPlane& described = layout_.planes()[p];
    const std::int64_t bytes = described.bytes_per_page_per_layer(layout_.page_size_tokens());
    planes.push_back({.data = buffers_[p]->data(),
                      .layers = static_cast<std::int64_t>(described.layers.size()),
                      .pages = pages_,
                      .page_bytes = bytes,
                      .layer_stride_bytes = bytes * pages_});
  }
  return planes;
}

void PagedKvPool::poison(std::int32_t page) {
  LEVADA_CHECK(page >= 0 && page < pages_, "a page of this pool");
  for (std::size_t p = 0; p < layout_.planes().size(); ++p) {
    const core::KvPlane& described = layout_.planes()[p];
    const std::int64_t bytes = described.bytes_per_page_per_layer(layout_.page_size_tokens());
    for (std::size_t l = 0; l < described.layers.size(); ++l) {
      auto* first = static_cast<std::byte*>(plane(static_cast<int>(p), static_cast<int>(l)).data) + page * bytes;
      const Status filled = stream_->fill(first, 0xFF, static_cast<std::size_t>(bytes));
      LEVADA_CHECK(filled.ok(), "a page of a live pool can be filled");
    }
  }
  LEVADA_CHECK(stream_->synchronize().ok(), "a page of a live pool can be filled");
}

}  // namespace levada::model
