// What: StepInputs, a step's integers on the device: written into one pinned block, sent by one copy.
// Owner: the CUDA model. The arrays it returns are valid for the stream until the next upload().
// Thread: the worker's.
// Invariant: arrays of a step with `padded_rows` rows always lie at the same addresses, so that a recorded graph can be
// replayed with new contents; padding rows write no KV, attend nothing and sample from row 0. A pinned block is written
// anew only after its copy has ended.
#pragma once

#include <array>
#include <memory>

#include "core/step_plan.h"
#include "device/device.h"

namespace levada::model {

struct StepArrays {
  std::int32_t *ids, *sources, *positions, *slots, *lengths, *table_first, *sample_rows;  // [padded_rows] each
  std::int32_t* block_tables;
  std::int32_t table_entries;  // of the step that was sent
};

class StepInputs {
 public:
  static Result<StepInputs> make(device::Device& device, std::int64_t max_rows, std::int64_t max_table_entries);

  bool fits(const core::StepPlan& plan, std::int32_t padded_rows) const;
  // REQUIRES: fits(plan, padded_rows), and the plan was checked (StepGeometry).
  Result<StepArrays> upload(const core::StepPlan& plan, std::int32_t padded_rows, std::int32_t page_size,
                            device::Stream& stream);
  std::int64_t bytes() const { return static_cast<std::int64_t>(device_->size_bytes()); }
  // The addresses that every upload of so many rows has.
  StepArrays arrays(std::int32_t padded_rows) const;

 private:
  static constexpr std::size_t kArrays = 7;
  struct Block {
    std::unique_ptr<device::DeviceBuffer> pinned;
    std::unique_ptr<device::Event> sent;
  };
  static StepArrays arrays_at(std::int32_t* first, std::int32_t padded_rows);

  std::int64_t max_rows_ = 0, max_table_entries_ = 0;
  std::unique_ptr<device::DeviceBuffer> device_;
  std::array<Block, 4> blocks_;
  std::size_t next_ = 0;
};

}  // namespace levada::model
