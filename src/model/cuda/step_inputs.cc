#include "model/cuda/step_inputs.h"

#include <algorithm>

namespace levada::model {

using kernels::cuda::BlockRequest;

namespace {

void fill_rows(const core::StepPlan& plan, std::int32_t padded_rows, std::int32_t page_size, const StepArrays& host) {
  const auto rows = static_cast<std::int32_t>(plan.tokens.size());
  std::copy(plan.tokens.begin(), plan.tokens.end(), host.ids);
  std::copy(plan.positions.begin(), plan.positions.end(), host.positions);
  std::fill(host.sources, host.sources + padded_rows, -1);
  for (const core::FutureToken& future : plan.future_tokens) host.sources[future.row] = future.previous_sample;
  for (const core::PlanSlice& slice : plan.slices) {
    const std::int32_t* table = plan.block_tables.data() + slice.block_table_first;
    for (std::int32_t i = 0; i < slice.range.count; ++i) {
      const std::int32_t row = slice.first_row + i, position = slice.range.first + i;
      host.slots[row] = table[position / page_size] * page_size + position % page_size;
      host.lengths[row] = position + 1;
      host.table_first[row] = slice.block_table_first;
    }
  }
  for (std::int32_t row = rows; row < padded_rows; ++row) {
    host.ids[row] = host.positions[row] = host.lengths[row] = host.table_first[row] = 0;
    host.slots[row] = -1;
  }
  std::fill(host.sample_rows, host.sample_rows + padded_rows, 0);
  for (std::size_t i = 0; i < plan.samples.size(); ++i) host.sample_rows[i] = plan.samples[i].row;
}

void fill_blocks(const core::StepPlan& plan, std::int32_t padded_blocks, BlockRequest* to) {
  BlockRequest* const end = to + padded_blocks;
  for (const core::PlanSlice& slice : plan.slices) {
    if (slice.propose == 0) continue;
    *to++ = {.sample = slice.sample_row,
             .draft_row = slice.first_row + slice.range.count - slice.drafts,
             .drafts = slice.drafts,
             .position = slice.range.end() - slice.drafts,
             .table_first = slice.block_table_first,
             .first_key = slice.draft_from,
             .rows = 1 + slice.propose};
  }
  std::fill(to, end, BlockRequest{});
}

}  // namespace

Result<StepInputs> StepInputs::make(device::Device& device, const StepSize& most, std::int64_t max_table_entries) {
  StepInputs inputs;
  inputs.most_ = most;
  inputs.max_table_entries_ = max_table_entries;
  const std::size_t bytes = (ints_of(most) + static_cast<std::size_t>(max_table_entries)) * sizeof(std::int32_t);
  LEVADA_ASSIGN_OR_RETURN(inputs.device_, device.allocate(bytes));
  for (Block& block : inputs.blocks_) {
    LEVADA_ASSIGN_OR_RETURN(block.pinned, device.allocate_pinned(bytes));
    LEVADA_ASSIGN_OR_RETURN(block.sent, device.make_event());
  }
  return inputs;
}

std::size_t StepInputs::ints_of(const StepSize& padded) {
  return kBlockInts * static_cast<std::size_t>(padded.blocks) + kArrays * static_cast<std::size_t>(padded.rows);
}

bool StepInputs::fits(const core::StepPlan& plan, const StepSize& padded) const {
  return padded.rows <= most_.rows && padded.blocks <= most_.blocks &&
         static_cast<std::int64_t>(plan.block_tables.size()) <= max_table_entries_;
}

StepArrays StepInputs::arrays_at(std::int32_t* first, const StepSize& padded) {
  std::int32_t* const rows = first + kBlockInts * static_cast<std::size_t>(padded.blocks);
  const auto at = [&](std::size_t array) { return rows + array * static_cast<std::size_t>(padded.rows); };
  StepArrays arrays{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
  arrays.drafting = reinterpret_cast<BlockRequest*>(first);
  return arrays;
}

StepArrays StepInputs::arrays(const StepSize& padded) const {
  return arrays_at(static_cast<std::int32_t*>(device_->data()), padded);
}

Result<StepArrays> StepInputs::upload(const core::StepPlan& plan, const StepSize& padded, std::int32_t page_size,
                                      device::Stream& stream) {
  LEVADA_CHECK(fits(plan, padded), "a step that fits");
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  if (block.sent->recorded()) LEVADA_RETURN_IF_ERROR(block.sent->wait());

  auto* const first = static_cast<std::int32_t*>(block.pinned->data());
  const StepArrays host = arrays_at(first, padded);
  fill_rows(plan, padded.rows, page_size, host);
  fill_blocks(plan, padded.blocks, host.drafting);
  std::copy(plan.block_tables.begin(), plan.block_tables.end(), host.block_tables);

  const std::size_t used = ints_of(padded) + plan.block_tables.size();
  LEVADA_RETURN_IF_ERROR(stream.copy(device_->data(), first, used * sizeof(std::int32_t)));
  LEVADA_RETURN_IF_ERROR(stream.record(*block.sent));
  StepArrays sent = arrays(padded);
  sent.table_entries = static_cast<std::int32_t>(plan.block_tables.size());
  return sent;
}

}  // namespace levada::model
