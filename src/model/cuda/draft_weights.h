// What: a DFlash draft's weights on the device: where its tensors lie in one piece of memory, and CudaDraft, a draft that
// was loaded into a piece of its own.
// Owner: CudaDraft owns its memory; the views of DraftTensors borrow.
// Thread: load() on any, beside steps; afterwards immutable.
// Invariant: drafts of equal geometry lie alike, so that one takes another's place by one copy, and recorded graphs, which
// know the addresses, compute with it from then on.
#pragma once

#include <mutex>

#include "model/cuda/cuda_weights.h"

namespace levada::model {

struct DraftTensors {
  // [hidden, hidden] for each of target_layer_ids: fc's columns of that layer, so that fc is summed up as the layers end.
  std::vector<device::TensorView> fc;
  device::TensorView hidden_norm;
  // What context rows take, of all layers: [layers * 2 * kv_width, hidden], k before v; [layers * head_dim].
  device::TensorView context_kv, context_k_norm;
  // A decoder's as the block rows go through it; embedding and head are the target's.
  CudaWeights block;
};

// In memory that begins at `base`, which may be null where only `bytes` is asked for. `context`: positions.
DraftTensors lay_out(const DraftConfig& config, DType dtype, std::int64_t context, std::byte* base,
                     std::int64_t& bytes);
// No draft that fits the room takes more.
std::int64_t most_draft_bytes(const DraftRoom& room, std::int64_t hidden, DType dtype, std::int64_t context);

class CudaDraft final : public Draft {
 public:
  // kInvalidArgument for what these kernels don't compute, kResourceExhausted without memory. `recording`: held by whoever
  // records a graph, during which nobody may allocate.
  static Result<std::shared_ptr<const CudaDraft>> load(const DraftSource& source, DType dtype, std::int64_t context,
                                                       device::Device& device, std::mutex& recording);
  const DraftConfig& config() const override { return config_; }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(memory_->size_bytes()); }
  const void* data() const { return memory_->data(); }

 private:
  CudaDraft(DraftConfig config, std::unique_ptr<device::DeviceBuffer> memory)
      : config_(std::move(config)), memory_(std::move(memory)) {}
  const DraftConfig config_;
  const std::unique_ptr<device::DeviceBuffer> memory_;
};

// Whether drafts lie alike and compute alike but for their numbers.
bool same_geometry(const DraftConfig& a, const DraftConfig& b);

}  // namespace levada::model
