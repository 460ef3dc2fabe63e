#include "model/draft_blocks.h"

#include <algorithm>

namespace levada::model {

DraftBlocks::DraftBlocks(const core::StepPlan& plan, std::span<const core::Token> sampled, core::Token mask,
                         std::int64_t window, std::int32_t page_size)
    : block_tables_(plan.block_tables), page_size_(page_size) {
  for (const core::PlanSlice& slice : plan.slices) {
    if (slice.propose == 0) continue;
    const auto drafts = static_cast<std::size_t>(slice.drafts);
    const auto end_row = static_cast<std::size_t>(slice.first_row + slice.range.count);
    const auto given = sampled.subspan(static_cast<std::size_t>(slice.sample_row), drafts + 1);
    const std::int32_t right = core::accepted_drafts(given, std::span(plan.tokens).subspan(end_row - drafts, drafts));
    add(slice, given[static_cast<std::size_t>(right)], slice.range.end() - slice.drafts + right, mask, window);
  }
}

void DraftBlocks::add(const core::PlanSlice& slice, core::Token last, std::int32_t position, core::Token mask,
                      std::int64_t window) {
  const auto first = static_cast<std::int32_t>(ids_.size());
  first_row_.push_back(first);
  rows_.push_back(1 + slice.propose);
  context_.push_back(position);
  table_first_.push_back(slice.block_table_first);
  for (std::int32_t offset = 0; offset <= slice.propose; ++offset) {
    ids_.push_back(offset == 0 ? last : mask);
    positions_.push_back(position + offset);
    if (offset > 0) guessing_rows_.push_back(first + offset);
    row_.push_back(first + offset);
    one_.push_back(1);
    row_table_first_.push_back(slice.block_table_first);
    full_context_.push_back(position + slice.propose);
    full_first_.push_back(slice.draft_from);
    const std::int64_t begin = std::max<std::int64_t>(slice.draft_from, position + offset - window + 1);
    slide_first_.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(begin, position)));
  }
}

kernels::PagedBatch DraftBlocks::writes() const {
  return {first_row_, rows_, context_, table_first_, block_tables_, page_size_};
}

kernels::PagedBatch DraftBlocks::reads(bool slides) const {
  return {row_,          one_,       slides ? positions_ : full_context_, row_table_first_,
          block_tables_, page_size_, slides ? slide_first_ : full_first_};
}

}  // namespace levada::model
