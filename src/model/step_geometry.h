// What: StepGeometry, a plan's slices as the arrays the kernels take, after checking that the plan can be run at all.
// Owner: one Forward; borrows the plan's block tables.
// Thread: the worker's.
// Invariant: every row belongs to exactly one slice, every id lies in the vocabulary, every position below the context
// and every page inside the pool, those of a draft's block included, so that no plan, however wrong, makes a kernel touch
// foreign memory. Samples of a slice with drafts are those of its last rows, in order.
#pragma once

#include <vector>

#include "core/step_plan.h"
#include "kernels/ops.h"

namespace levada::model {

struct StepLimits {
  std::int64_t vocabulary = 0, context = 0;
  std::int32_t pages = 0, page_size = 0;
  std::int64_t draft_block = 0;  // tokens of a block of the draft the step was given; 0: it was given none
};

class StepGeometry {
 public:
  // kInvalidArgument naming what is out of range.
  static Result<StepGeometry> make(const core::StepPlan& plan, const StepLimits& limits);
  kernels::PagedBatch batch() const;

 private:
  std::vector<std::int32_t> first_row_, rows_, context_, block_table_first_;
  std::span<const std::int32_t> block_tables_;
  std::int32_t page_size_ = 0;
};

}  // namespace levada::model
