// What: PagedKvPool, the KV bytes of one rank on its device, with the tensor views the layers use.
// Owner: the engine worker.
// Thread: the worker's.
// Invariant: one buffer per plane, laid out [layer][page][token in page][element]; it follows KvLayout and lists
// nothing of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/model.h"

namespace levada::model {

class PagedKvPool final : public KvPool {
 public:
  // `heads`: heads that share an element row of a plane, for the tensors' shape. kResourceExhausted with both numbers.
  static Result<std::unique_ptr<KvPool>> make(const core::KvLayout& layout, std::int32_t pages, std::int64_t heads,
                                              device::Device& device);

  const core::KvLayout& layout() const override { return layout_; }
  std::int32_t pages() const override { return pages_; }
  device::TensorView plane(int plane, int layer) const override;
  void poison(std::int32_t page) override;

  // [pages, page_size, heads, elements / heads]
  const at::Tensor& tensor(std::size_t plane, std::size_t layer) const { return tensors_[plane][layer]; }

 private:
  PagedKvPool(core::KvLayout layout, std::int32_t pages) : layout_(std::move(layout)), pages_(pages) {}
  core::KvLayout layout_;
  std::int32_t pages_;
  device::DeviceKind place_ = device::DeviceKind::kCpu;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::unique_ptr<device::DeviceBuffer>> buffers_;  // per plane
  std::vector<std::vector<at::Tensor>> tensors_;                // [plane][layer]
};

}  // namespace levada::model
