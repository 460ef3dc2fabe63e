// What: PagedKvPool, the KV bytes of one rank on its device.
// Owner: the engine worker.
// Thread: the worker's.
// Invariant: one buffer per plane, laid out [layer][page][token in page][element]; it follows KvLayout and lists
// nothing of its own.
#pragma once

#include "kernels/page_planes.h"
#include "model/config.h"
#include "model/model.h"

namespace levada::model {

// What the numbers of k and v are multiplied by: nothing, constants of the checkpoint, or a pair of each page and layer.
enum class KvScaling : std::uint8_t { kNone, kLayer, kPage };

// The planes of a draft of the room's size.
struct DraftPlanes {
  DraftRoom room;
  DType dtype = DType::kF32;
};

// k and v of every layer, kv_heads * head_dim elements a token; with scales by page those as a third plane
// (kernels/page_scales.h); with `draft` draft_k and draft_v of each of its layers as the last two, in core::kDraftGroup.
core::KvLayout gqa_layout(const ModelConfig& config, DType dtype, std::int32_t page_size_tokens,
                          KvScaling scaling = KvScaling::kNone, const std::optional<DraftPlanes>& draft = {});

class PagedKvPool : public KvPool {
 public:
  // kResourceExhausted with both numbers.
  static Result<std::unique_ptr<PagedKvPool>> make(const core::KvLayout& layout, std::int32_t pages,
                                                   device::Device& device);

  const core::KvLayout& layout() const override { return layout_; }
  std::int32_t pages() const override { return pages_; }
  device::TensorView plane(int plane, int layer) const override;
  // For copies of whole pages, everything that belongs to them.
  std::vector<kernels::PagePlane> page_planes() const;
  void poison(std::int32_t page) override;

 protected:
  PagedKvPool(core::KvLayout layout, std::int32_t pages) : layout_(std::move(layout)), pages_(pages) {}
  Status allocate(device::Device& device);

 private:
  core::KvLayout layout_;
  std::int32_t pages_;
  device::DeviceKind place_ = device::DeviceKind::kCpu;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::unique_ptr<device::DeviceBuffer>> buffers_;  // per plane
};

}  // namespace levada::model
