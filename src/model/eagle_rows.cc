#include "model/eagle_rows.h"

namespace levada::model {

EagleRows::EagleRows(const core::StepPlan& plan, std::span<const core::Token> sampled, std::int32_t page_size)
    : block_tables_(plan.block_tables), page_size_(page_size) {
  for (const core::PlanSlice& slice : plan.slices) add(plan, slice, sampled);
}

void EagleRows::add(const core::StepPlan& plan, const core::PlanSlice& slice, std::span<const core::Token> sampled) {
  std::int32_t count = slice.range.count;
  core::Token last = slice.next_token;
  if (slice.sample_row >= 0) {
    const auto drafts = static_cast<std::size_t>(slice.drafts);
    const auto end_row = static_cast<std::size_t>(slice.first_row + count);
    const auto given = sampled.subspan(static_cast<std::size_t>(slice.sample_row), drafts + 1);
    const std::int32_t right = core::accepted_drafts(given, std::span(plan.tokens).subspan(end_row - drafts, drafts));
    count -= slice.drafts - right;
    last = given[static_cast<std::size_t>(right)];
  } else if (last < 0) {
    --count;
  }
  if (count == 0) return;
  first_row_.push_back(static_cast<std::int32_t>(rows_.size()));
  count_.push_back(count);
  context_.push_back(slice.range.first);
  table_first_.push_back(slice.block_table_first);
  for (std::int32_t i = 0; i < count; ++i) {
    rows_.push_back(slice.first_row + i);
    const bool inside = i + 1 < count || last < 0;
    next_tokens_.push_back(inside ? plan.tokens[static_cast<std::size_t>(slice.first_row + i + 1)] : last);
    positions_.push_back(slice.range.first + i);
  }
  if (slice.propose == 0) return;
  chains_.push_back({static_cast<std::int32_t>(rows_.size()) - 1, last, positions_.back(), slice.propose,
                     slice.block_table_first, slice.draft_from});
}

kernels::PagedBatch EagleRows::writes() const {
  return {first_row_, count_, context_, table_first_, block_tables_, page_size_};
}

EagleStep::EagleStep(std::span<const EagleRows::Chain> chains, std::int32_t step,
                     std::span<const std::int32_t> block_tables, std::int32_t page_size)
    : block_tables_(block_tables), page_size_(page_size) {
  for (const EagleRows::Chain& chain : chains) {
    row_.push_back(static_cast<std::int32_t>(row_.size()));
    one_.push_back(1);
    positions_.push_back(chain.position + step);
    table_first_.push_back(chain.block_table_first);
    first_key_.push_back(chain.first_key);
  }
}

kernels::PagedBatch EagleStep::batch() const {
  return {row_, one_, positions_, table_first_, block_tables_, page_size_, first_key_};
}

}  // namespace levada::model
