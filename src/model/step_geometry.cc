#include "model/step_geometry.h"

#include "base/status.h"

namespace levada::model {
namespace {

Status wrong(const std::string& what, std::int64_t given, std::int64_t limit) {
  return invalid_argument("step plan: " + what + " " + std::to_string(given) + " is out of range, the limit is " +
                          std::to_string(limit));
}

// Whether [first, first + count) lies in a list of `size` entries.
bool inside(std::int32_t first, std::int32_t count, std::size_t size) {
  return first >= 0 && count >= 0 && static_cast<std::size_t>(first) + static_cast<std::size_t>(count) <= size;
}

Status check_sample(const core::StepPlan& plan, const core::SampleRow& sample, std::int64_t vocabulary) {
  const auto rows = static_cast<std::int64_t>(plan.tokens.size());
  if (sample.row < 0 || sample.row >= rows) return wrong("a sample's row", sample.row, rows);
  if (!inside(sample.history_first, sample.history_tokens, plan.history.size()) || sample.history_prompt_tokens < 0 ||
      sample.history_prompt_tokens > sample.history_tokens) {
    return wrong("a sample's history", sample.history_first, static_cast<std::int64_t>(plan.history.size()));
  }
  if (!inside(sample.banned_first, sample.banned_count, plan.banned.size())) {
    return wrong("a sample's banned ids", sample.banned_first, static_cast<std::int64_t>(plan.banned.size()));
  }
  if (!inside(sample.bias_first, sample.bias_count, plan.bias_ids.size()) ||
      plan.bias_values.size() != plan.bias_ids.size()) {
    return wrong("a sample's biases", sample.bias_first, static_cast<std::int64_t>(plan.bias_ids.size()));
  }
  const auto words = static_cast<std::int32_t>(core::mask_words(vocabulary));
  if (sample.mask_first != -1 && !inside(sample.mask_first, words, plan.masks.size())) {
    return wrong("a sample's mask", sample.mask_first, static_cast<std::int64_t>(plan.masks.size()));
  }
  return {};
}

// The samples of a slice whose last rows hold drafts or after which the draft proposes.
Status check_drafts(const core::StepPlan& plan, const core::PlanSlice& slice, const StepLimits& limits) {
  if (slice.drafts < 0 || slice.drafts >= slice.range.count) {
    return wrong("drafts of a slice", slice.drafts, slice.range.count - 1);
  }
  const std::int64_t most = plan.draft == core::kNoDraft ? 0 : limits.draft_block - 1;
  if (slice.propose < 0 || slice.propose > most) return wrong("tokens to propose", slice.propose, most);
  if (slice.draft_from < 0 || slice.draft_from > slice.range.first) {
    return wrong("the first position with draft planes", slice.draft_from, slice.range.first);
  }
  if (slice.drafts == 0 && slice.propose == 0) return {};
  const std::int32_t samples = 1 + slice.drafts;
  if (!inside(slice.sample_row, samples, plan.samples.size())) {
    return wrong("a slice's samples", slice.sample_row, static_cast<std::int64_t>(plan.samples.size()));
  }
  for (std::int32_t i = 0; i < samples; ++i) {
    const std::int32_t row = plan.samples[static_cast<std::size_t>(slice.sample_row + i)].row;
    const std::int32_t expected = slice.first_row + slice.range.count - samples + i;
    if (row != expected) return wrong("the row of a slice's sample", row, expected);
  }
  return {};
}

Status check_slice(const core::StepPlan& plan, const core::PlanSlice& slice, std::int64_t next_row,
                   const StepLimits& limits) {
  const auto rows = static_cast<std::int64_t>(plan.tokens.size());
  if (slice.first_row != next_row) return wrong("a slice's first row", slice.first_row, next_row);
  if (slice.range.count < 1 || slice.range.count > rows - next_row)
    return wrong("rows of a slice", slice.range.count, rows);
  if (slice.range.first < 0 || slice.range.first > limits.context - slice.range.count) {
    return wrong("the last position of a slice", std::int64_t{slice.range.first} + slice.range.count, limits.context);
  }
  LEVADA_RETURN_IF_ERROR(check_drafts(plan, slice, limits));
  if (slice.next_token < -1 || slice.next_token >= limits.vocabulary) {
    return wrong("the token behind a slice", slice.next_token, limits.vocabulary);
  }
  const std::int64_t tokens = slice.range.end() + (slice.propose > 0 ? 1 + slice.propose : 0);
  if (tokens > limits.context) return wrong("the last position of a block", tokens, limits.context);
  const std::int64_t pages = (tokens + limits.page_size - 1) / limits.page_size;
  const auto table = static_cast<std::int64_t>(plan.block_tables.size());
  if (slice.block_table_pages < pages) return wrong("pages of a slice", slice.block_table_pages, pages);
  if (slice.block_table_first < 0 || slice.block_table_first > table - slice.block_table_pages) {
    return wrong("a block table's first entry", slice.block_table_first, table);
  }
  for (std::int64_t p = 0; p < pages; ++p) {
    const std::int32_t page = plan.block_tables[static_cast<std::size_t>(slice.block_table_first + p)];
    if (page < 0 || page >= limits.pages) return wrong("page", page, limits.pages);
  }
  for (std::int32_t i = 0; i < slice.range.count; ++i) {
    const auto row = static_cast<std::size_t>(next_row + i);
    if (plan.positions[row] != slice.range.first + i) {
      return wrong("a row's position", plan.positions[row], slice.range.first + i);
    }
  }
  return {};
}

}  // namespace

Result<StepGeometry> StepGeometry::make(const core::StepPlan& plan, const StepLimits& limits) {
  if (plan.tokens.empty()) return invalid_argument("step plan: no tokens");
  if (plan.positions.size() != plan.tokens.size()) {
    return wrong("number of positions", static_cast<std::int64_t>(plan.positions.size()),
                 static_cast<std::int64_t>(plan.tokens.size()));
  }
  for (core::Token id : plan.tokens) {
    if (id < 0 || id >= limits.vocabulary) return wrong("token", id, limits.vocabulary);
  }
  if (plan.draft != core::kNoDraft && limits.draft_block == 0)
    return invalid_argument("step plan: its draft was not given");
  StepGeometry geometry;
  geometry.block_tables_ = plan.block_tables;
  geometry.page_size_ = limits.page_size;
  std::int64_t next_row = 0;
  for (const core::PlanSlice& slice : plan.slices) {
    LEVADA_RETURN_IF_ERROR(check_slice(plan, slice, next_row, limits));
    geometry.first_row_.push_back(slice.first_row);
    geometry.rows_.push_back(slice.range.count);
    geometry.context_.push_back(slice.range.first);
    geometry.block_table_first_.push_back(slice.block_table_first);
    next_row += slice.range.count;
  }
  if (next_row != static_cast<std::int64_t>(plan.tokens.size())) {
    return wrong("rows of all slices", next_row, static_cast<std::int64_t>(plan.tokens.size()));
  }
  for (const core::SampleRow& sample : plan.samples)
    LEVADA_RETURN_IF_ERROR(check_sample(plan, sample, limits.vocabulary));
  return geometry;
}

kernels::PagedBatch StepGeometry::batch() const {
  return {first_row_, rows_, context_, block_table_first_, block_tables_, page_size_};
}

}  // namespace levada::model
