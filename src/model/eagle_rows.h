// What: EagleRows, the rows of a step whose next token is known once it has sampled, and the chains that its slices ask for, as
// the arrays that kernels take.
// Owner: one step; borrows the plan's block tables.
// Thread: the worker's.
// Invariant: slot i takes the state of row i and the token at i + 1: inside a slice the next row's, at its end the sampled one
// or PlanSlice::next_token; a rejected draft's row is left out. The chain of a slice begins with its last row, at P - 1 where P
// is the position of the last token its samples gave; step j stands at P - 1 + j and sees draft_from .. P - 1 + j.
#pragma once

#include <span>
#include <vector>

#include "core/step_plan.h"
#include "kernels/ops.h"

namespace levada::model {

class EagleRows {
 public:
  // `sampled`: one per plan.samples. REQUIRES: a plan that StepGeometry passed.
  EagleRows(const core::StepPlan& plan, std::span<const core::Token> sampled, std::int32_t page_size);

  bool empty() const { return rows_.empty(); }
  // Of the plan, in its order; the token behind each, and its own position.
  std::span<const std::int32_t> rows() const { return rows_; }
  std::span<const std::int32_t> next_tokens() const { return next_tokens_; }
  std::span<const std::int32_t> positions() const { return positions_; }
  // Where the rows' keys and values go.
  kernels::PagedBatch writes() const;

  struct Chain {
    std::int32_t row = 0;                  // in rows()
    std::int32_t token = 0, position = 0;  // of its first step
    std::int32_t steps = 0, block_table_first = 0, first_key = 0;
  };
  std::span<const Chain> chains() const { return chains_; }

 private:
  void add(const core::StepPlan& plan, const core::PlanSlice& slice, std::span<const core::Token> sampled);

  std::vector<std::int32_t> rows_, next_tokens_, positions_;
  std::vector<std::int32_t> first_row_, count_, context_, table_first_;  // of slices
  std::vector<Chain> chains_;
  std::span<const std::int32_t> block_tables_;
  std::int32_t page_size_;
};

// Chains that go on, one row each: those of one draft step.
class EagleStep {
 public:
  // `step`: how many have run before.
  EagleStep(std::span<const EagleRows::Chain> chains, std::int32_t step, std::span<const std::int32_t> block_tables,
            std::int32_t page_size);
  std::span<const std::int32_t> positions() const { return positions_; }
  // Where each row's keys and values go, and what it sees.
  kernels::PagedBatch batch() const;

 private:
  std::vector<std::int32_t> positions_, row_, one_, table_first_, first_key_;
  std::span<const std::int32_t> block_tables_;
  std::int32_t page_size_;
};

}  // namespace levada::model
