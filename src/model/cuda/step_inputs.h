// What: StepInputs, a step's integers on the device: written into one pinned block, sent by one copy.
// Owner: the CUDA model. The arrays it returns are valid for the stream until the next upload().
// Thread: the worker's.
// Invariant: arrays of a step of one size always lie at the same addresses, so that a recorded graph can be replayed with
// new contents; padding rows write no KV, attend nothing and sample from row 0, padding blocks touch no KV. A pinned block
// is written anew only after its copy has ended.
#pragma once

#include <array>
#include <memory>

#include "core/step_plan.h"
#include "device/device.h"
#include "kernels/cuda/draft_block.h"

namespace levada::model {

struct StepArrays {
  std::int32_t *ids = nullptr, *sources = nullptr, *positions = nullptr, *slots = nullptr, *lengths = nullptr,
               *table_first = nullptr, *sample_rows = nullptr;  // [padded_rows] each
  std::int32_t* block_tables = nullptr;
  std::int32_t table_entries = 0;                   // of the step that was sent
  const std::int32_t* starts = nullptr;             // [padded_rows]: AttentionRows'; null: 0
  kernels::cuda::BlockRequest* drafting = nullptr;  // [padded_blocks]: the slices that want proposals, in their order
};

// What a step's arrays are padded to: its rows, and the blocks of those slices.
struct StepSize {
  std::int32_t rows = 0, blocks = 0;
};

class StepInputs {
 public:
  static Result<StepInputs> make(device::Device& device, const StepSize& most, std::int64_t max_table_entries);

  bool fits(const core::StepPlan& plan, const StepSize& padded) const;
  // REQUIRES: fits(plan, padded), and the plan was checked (StepGeometry).
  Result<StepArrays> upload(const core::StepPlan& plan, const StepSize& padded, std::int32_t page_size,
                            device::Stream& stream);
  std::int64_t bytes() const { return static_cast<std::int64_t>(device_->size_bytes()); }
  // The addresses that every upload of that size has.
  StepArrays arrays(const StepSize& padded) const;

 private:
  static constexpr std::size_t kArrays = 7;
  struct Block {
    std::unique_ptr<device::DeviceBuffer> pinned;
    std::unique_ptr<device::Event> sent;
  };
  static constexpr std::size_t kBlockInts = sizeof(kernels::cuda::BlockRequest) / sizeof(std::int32_t);
  static std::size_t ints_of(const StepSize& padded);  // without the block tables
  static StepArrays arrays_at(std::int32_t* first, const StepSize& padded);

  StepSize most_;
  std::int64_t max_table_entries_ = 0;
  std::unique_ptr<device::DeviceBuffer> device_;
  std::array<Block, 4> blocks_;
  std::size_t next_ = 0;
};

}  // namespace levada::model
