#include "bench/draft_stage.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace levada::bench {

Relay::Relay(core::StepExecutor& executor) : executor_(executor) {
  executor_.set_result_sink([this](core::StepResult result) {
    DraftStage* stage = nullptr;
    {
      std::lock_guard lock(mutex_);
      LEVADA_CHECK(!waiting_.empty(), "a result answers a plan");
      stage = waiting_.front();
      waiting_.pop_front();
    }
    stage->on_result(std::move(result));
  });
}

void Relay::submit(DraftStage* stage, std::unique_ptr<core::StepPlan> plan) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(stage);
  }
  executor_.submit(std::move(plan));
}

void DraftCount::add(std::int32_t drafts_of_step, std::int32_t accepted_of_step) {
  ++steps;
  drafts += drafts_of_step;
  accepted += accepted_of_step;
  const auto places = static_cast<std::size_t>(drafts_of_step);
  if (had.size() < places) {
    had.resize(places);
    kept.resize(places);
  }
  for (std::size_t i = 0; i < places; ++i) {
    ++had[i];
    if (i < static_cast<std::size_t>(accepted_of_step)) ++kept[i];
  }
}

void DraftStage::expect(core::RequestId request, std::int32_t prompt_tokens, std::vector<core::Token> answer) {
  std::lock_guard lock(mutex_);
  answers_[request] = {prompt_tokens, std::move(answer)};
}

void DraftStage::forget_requests() {
  std::lock_guard lock(mutex_);
  answers_.clear();
}

DraftCount DraftStage::take_count() {
  std::lock_guard lock(mutex_);
  return std::exchange(count_, {});
}

void DraftStage::submit(std::unique_ptr<core::StepPlan> plan) {
  std::vector<Slice> slices;
  for (core::PlanSlice& slice : plan->slices) {
    if (slice.sample_row < 0) continue;
    const auto end = plan->tokens.begin() + slice.first_row + slice.range.count;
    const auto& sample = plan->samples[static_cast<std::size_t>(slice.sample_row)];
    slices.push_back({slice.range.request,
                      slice.sample_row,
                      sample.position,
                      slice.propose,
                      slice.range.count == 1 + slice.drafts,
                      {end - slice.drafts, end}});
    if (proposals_ != Proposals::kOwn) slice.propose = 0;
  }
  if (proposals_ != Proposals::kOwn) plan->draft = core::kNoDraft;
  {
    std::lock_guard lock(mutex_);
    plans_.push_back(std::move(slices));
  }
  relay_.submit(this, std::move(plan));
}

void DraftStage::on_result(core::StepResult result) {
  {
    std::lock_guard lock(mutex_);
    const std::vector<Slice> slices = std::move(plans_.front());
    plans_.pop_front();
    for (const Slice& slice : slices) {
      if (!result.status.ok()) break;
      const auto sampled = std::span(result.sampled).subspan(static_cast<std::size_t>(slice.first_sample));
      const std::int32_t accepted = core::accepted_drafts(sampled, slice.drafts);
      if (slice.decodes) count_.add(static_cast<std::int32_t>(slice.drafts.size()), accepted);
      if (proposals_ != Proposals::kOwn) propose(slice, slice.position + accepted + 1, result.proposed);
    }
  }
  sink_(std::move(result));
}

// `position`: of the first token proposed.
void DraftStage::propose(const Slice& slice, std::int32_t position, std::vector<core::Token>& proposed) const {
  const auto answer = answers_.find(slice.request);
  for (std::int32_t i = position; i < position + slice.propose; ++i) {
    core::Token right = 0;  // behind the answer's end nothing is
    if (answer != answers_.end()) {
      const auto at = static_cast<std::size_t>(i - answer->second.prompt_tokens);
      if (at < answer->second.tokens.size()) right = answer->second.tokens[at];
    }
    // A wrong token is another one of the vocabulary, whatever its size: 0 and 1 are in each.
    proposed.push_back(proposals_ == Proposals::kRight ? right : right == 0 ? 1 : 0);
  }
}

}  // namespace levada::bench
