// What: DraftBlocks, the blocks that a step's slices ask the draft for, as the arrays that kernels take.
// Owner: one step; borrows the plan's block tables.
// Thread: the worker's.
// Invariant: the block of a slice stands at the position P of the last token its samples gave and has 1 + propose rows. A
// row of a full layer sees the draft's context from draft_from to P and the whole block; of a sliding one the last window
// positions up to its own, and all of the block up to itself. All geometry of blocks is here.
// Mask: docs/models.md, "DFlash drafts".
#pragma once

#include <span>
#include <vector>

#include "core/step_plan.h"
#include "kernels/ops.h"

namespace levada::model {

class DraftBlocks {
 public:
  // `sampled`: one per plan.samples. REQUIRES: a plan that StepGeometry passed.
  DraftBlocks(const core::StepPlan& plan, std::span<const core::Token> sampled, core::Token mask, std::int64_t window,
              std::int32_t page_size);

  bool empty() const { return ids_.empty(); }
  std::span<const std::int32_t> ids() const { return ids_; }
  std::span<const std::int32_t> positions() const { return positions_; }
  // Rows 1 … of every block: those that guess.
  std::span<const std::int32_t> guessing_rows() const { return guessing_rows_; }
  // Where the rows' keys and values go.
  kernels::PagedBatch writes() const;
  // What the rows see: each is a slice of its own.
  kernels::PagedBatch reads(bool slides) const;

 private:
  void add(const core::PlanSlice& slice, core::Token last, std::int32_t position, core::Token mask,
           std::int64_t window);

  std::vector<std::int32_t> ids_, positions_, guessing_rows_;
  std::vector<std::int32_t> first_row_, rows_, context_, table_first_;                               // of blocks
  std::vector<std::int32_t> row_, one_, row_table_first_, full_context_, full_first_, slide_first_;  // of rows
  std::span<const std::int32_t> block_tables_;
  std::int32_t page_size_;
};

}  // namespace levada::model
