// What: SamplingBatch, the sample rows of the step being built: one pass over its requests into one buffer that is kept
// (S20 in docs/spec-map.md).
// Owner: the PlanBuilder.
// Thread: the scheduler's.
// Invariant: a row's constants are written when another request takes its place, so a batch that did not change costs two
// numbers a row; the buffer only grows, and never while the batch does not.
#pragma once

#include <span>
#include <vector>

#include "core/step_plan.h"
#include "sched/request_state.h"

namespace levada::sched {

class SamplingBatch {
 public:
  // The next step has no rows yet.
  void begin() { count_ = 0; }
  // The row of the next request. `varies`: the caller writes more into it, so its constants are written anew.
  core::SampleRow& add(const RequestState& state, std::int32_t row, std::int32_t position, bool varies) {
    if (count_ == rows_.size()) grow();  // never in a batch of a size that was there before
    core::SampleRow& sample = rows_[count_];
    Holder& holder = holders_[count_++];
    if (holder.request != state.request.id || holder.varies || varies) {
      sample = state.sample_constants;
      holder = {state.request.id, varies};
    }
    sample.row = row;
    sample.position = position;
    return sample;
  }
  std::span<const core::SampleRow> rows() const { return std::span(rows_).first(count_); }

 private:
  struct Holder {
    core::RequestId request{};
    bool varies = true;  // nobody's row yet
  };
  void grow() {
    rows_.emplace_back();
    holders_.emplace_back();
  }

  std::vector<core::SampleRow> rows_;
  std::vector<Holder> holders_;  // of the rows, this step's or the one before's
  std::size_t count_ = 0;
};

}  // namespace levada::sched
