#include "sched/plan_builder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace levada::sched {

using core::SampleRow;

void PlanBuilder::begin(core::StepId step, core::DraftVersion draft, std::int64_t now_us) {
  plan_ = std::make_unique<core::StepPlan>();
  plan_->step = step;
  plan_->draft = draft;
  plan_->tokens.reserve(rows_hint_);
  plan_->positions.reserve(rows_hint_);
  plan_->slices.reserve(slices_hint_);
  samples_.begin();
  plan_->future_tokens.reserve(slices_hint_);
  plan_->block_tables.reserve(table_hint_);
  flight_ = Flight{};
  flight_.step = step;
  flight_.draft = draft;
  flight_.planned_us = now_us;
  flight_.rows.reserve(slices_hint_);
}

std::unique_ptr<core::StepPlan> PlanBuilder::take_plan() {
  plan_->samples.assign(samples_.rows().begin(), samples_.rows().end());
  rows_hint_ = plan_->tokens.size();
  slices_hint_ = plan_->slices.size();
  table_hint_ = plan_->block_tables.size() + slices_hint_;  // about to grow by some pages
  return std::move(plan_);
}

void PlanBuilder::add_decode(RequestState& state) {
  LEVADA_CHECK(state.planned_tokens == state.known_tokens() + state.pending_samples - 1,
               "only the newest token lacks KV");
  LEVADA_CHECK(!state.speculates() || state.pending_samples == 0, "drafts continue a known token");
  add_slice(state, 1, state.drafts, true);
  state.drafts.clear();
}

void PlanBuilder::add_prefill(RequestState& state, std::int32_t extend_tokens) {
  flight_.decode_only = false;
  add_slice(state, extend_tokens, {}, state.planned_tokens + extend_tokens == state.input_tokens);
}

std::span<const core::Token> PlanBuilder::ask_guide(core::TokenGuide& guide, std::span<const core::Token> drafts) {
  const auto words = static_cast<std::size_t>(core::mask_words(vocabulary_));
  guide_words_.clear();
  guide_binds_.clear();
  std::size_t allowed = 0;
  for (;;) {
    guide_words_.resize(guide_words_.size() + words, ~std::uint32_t{0});
    const auto mask = std::span(guide_words_).last(words);
    guide_binds_.push_back(guide.allowed(mask));
    if (allowed == drafts.size()) break;
    const core::Token draft = drafts[allowed];
    if (guide_binds_.back() && (mask[static_cast<std::size_t>(draft) / 32] >> draft % 32 & 1) == 0) break;
    if (!guide.accept(draft).ok()) break;
    ++allowed;
  }
  guide.rollback(static_cast<std::int32_t>(allowed));
  return drafts.first(allowed);
}

void PlanBuilder::add_slice(RequestState& state, std::int32_t count, std::span<const core::Token> drafts, bool sample) {
  core::StepPlan& plan = *plan_;
  const std::int32_t first = state.planned_tokens;
  if (sample && state.request.guide) drafts = ask_guide(*state.request.guide, drafts);
  core::PlanSlice slice;
  slice.drafts = static_cast<std::int32_t>(drafts.size());
  slice.range = {state.request.id, first, count + slice.drafts};
  slice.first_row = static_cast<std::int32_t>(plan.tokens.size());
  slice.block_table_first = static_cast<std::int32_t>(plan.block_tables.size());
  slice.block_table_pages = state.pages.size();
  for (const core::PageId page : state.pages.table()) plan.block_tables.push_back(core::index(page));

  const bool input_unknown = first >= state.known_tokens();
  if (input_unknown) {
    LEVADA_CHECK(core::value(state.last_plan) + 1 == core::value(plan.step), "an unknown token is the plan before's");
    plan.future_tokens.push_back({slice.first_row, state.last_sample});
    plan.tokens.push_back(0);
  } else {
    plan.tokens.insert(plan.tokens.end(), state.tokens.begin() + first, state.tokens.begin() + first + count);
    plan.tokens.insert(plan.tokens.end(), drafts.begin(), drafts.end());
  }
  for (std::int32_t i = 0; i < slice.range.count; ++i) plan.positions.push_back(first + i);

  state.planned_tokens = slice.range.end();
  FlightRow row{.state = &state, .end_tokens = slice.range.end()};
  if (sample) {
    slice.sample_row = row.sample = flight_.samples;
    slice.propose = std::exchange(state.propose, 0);
    add_samples(state, slice, input_unknown);
  } else if (slice.range.end() < state.known_tokens()) {
    slice.next_token = state.tokens[static_cast<std::size_t>(slice.range.end())];
  }
  slice.draft_from = std::min(state.draft_from, first);
  row.drafts_first = static_cast<std::int32_t>(flight_.drafts.size());
  row.drafts = slice.drafts;
  flight_.drafts.insert(flight_.drafts.end(), drafts.begin(), drafts.end());
  row.proposed_first = flight_.proposed;
  row.proposed = slice.propose;
  flight_.proposed += slice.propose;
  flight_.speculative = flight_.speculative || slice.drafts > 0 || slice.propose > 0;
  if (state.request.capture) add_capture(*state.request.capture);
  add_wishes(state, slice, row);
  plan.slices.push_back(slice);
  flight_.rows.push_back(row);
  ++state.plans_in_flight;
  state.last_plan = plan.step;
}

// One for each of the last 1 + drafts rows.
void PlanBuilder::add_samples(RequestState& state, const core::PlanSlice& slice, bool input_unknown) {
  const std::int32_t before = slice.range.count - 1 - slice.drafts;
  for (std::int32_t i = 0; i <= slice.drafts; ++i) {
    add_sample(state, slice.first_row + before + i, slice.range.first + before + i + 1, i, input_unknown);
  }
}

void PlanBuilder::add_wishes(RequestState& state, const core::PlanSlice& slice, FlightRow& row) {
  core::StepPlan& plan = *plan_;
  const std::int32_t first = slice.range.first, end = slice.range.end();
  row.scores_first = flight_.scores;
  for (std::int32_t p = std::max(first, state.score_from); p < std::min(end, state.score_end); ++p) {
    plan.scores.push_back(
        {slice.first_row + p - first, state.tokens[static_cast<std::size_t>(p) + 1], state.request.logprobs->top});
    state.score_from = p + 1;
    ++row.scores_count;
  }
  flight_.scores += row.scores_count;
  const std::int32_t from = std::max(first, state.hidden_from), to = std::min(end, state.hidden_end);
  if (from >= to) return;
  plan.hidden.push_back({slice.first_row + from - first, to - from});
  row.hidden = flight_.hidden++;
  row.hidden_rows = to - from;
  state.hidden_from = to;
}

// For the slice about to be added.
void PlanBuilder::add_capture(const core::CaptureRequest& capture) {
  core::StepPlan& plan = *plan_;
  plan.captures.push_back({static_cast<std::int32_t>(plan.slices.size()), capture.id,
                           static_cast<std::int32_t>(plan.capture_layers.size()),
                           static_cast<std::int32_t>(capture.layers.size()), capture.final_norm});
  plan.capture_layers.insert(plan.capture_layers.end(), capture.layers.begin(), capture.layers.end());
}

void PlanBuilder::add_sample(RequestState& state, std::int32_t plan_row, std::int32_t position,
                             std::int32_t drafts_before, bool input_unknown) {
  const core::SamplingParams& sampling = state.request.sampling;
  const bool constrained = position - state.prompt_tokens() < state.stop_rules.min_new_tokens ||
                           !sampling.logit_bias.empty() || state.request.guide;
  SampleRow& row = samples_.add(state, plan_row, position, sampling.penalised() || constrained);
  if (sampling.penalised()) add_history(state, drafts_before, input_unknown, row);
  if (constrained) add_constraints(state, position, static_cast<std::size_t>(drafts_before), row);
  flight_.logprobs = flight_.logprobs || row.top_logprobs >= 0;
  state.last_sample = flight_.samples++;
  ++state.pending_samples;
}

// Rows of drafts share one list: each takes it up to itself.
void PlanBuilder::add_history(const RequestState& state, std::int32_t drafts_before, bool input_unknown,
                              SampleRow& row) {
  const core::SamplingParams& sampling = state.request.sampling;
  row.frequency_penalty = sampling.frequency_penalty;
  row.presence_penalty = sampling.presence_penalty;
  row.repetition_penalty = sampling.repetition_penalty;
  row.history_prompt_tokens = state.prompt_tokens();
  row.append_input_to_history = input_unknown;
  row.history_tokens = state.known_tokens() + drafts_before;
  std::vector<core::Token>& history = plan_->history;
  if (drafts_before == 0) {
    history.insert(history.end(), state.tokens.begin(), state.tokens.end());
  } else {
    history.push_back(plan_->tokens[static_cast<std::size_t>(row.row)]);
  }
  row.history_first = static_cast<std::int32_t>(history.size()) - row.history_tokens;
}

void PlanBuilder::add_constraints(const RequestState& state, std::int32_t position, std::size_t drafts_before,
                                  SampleRow& row) {
  core::StepPlan& plan = *plan_;
  if (position - state.prompt_tokens() < state.stop_rules.min_new_tokens) {
    row.banned_first = static_cast<std::int32_t>(plan.banned.size());
    row.banned_count = static_cast<std::int32_t>(state.stop_rules.stop_ids.size());
    plan.banned.insert(plan.banned.end(), state.stop_rules.stop_ids.begin(), state.stop_rules.stop_ids.end());
  }
  row.bias_first = static_cast<std::int32_t>(plan.bias_ids.size());
  row.bias_count = static_cast<std::int32_t>(state.request.sampling.logit_bias.size());
  for (const core::LogitBias& bias : state.request.sampling.logit_bias) {
    plan.bias_ids.push_back(bias.token);
    plan.bias_values.push_back(bias.bias);
  }
  if (!state.request.guide || !guide_binds_[drafts_before]) return;
  const auto words = static_cast<std::size_t>(core::mask_words(vocabulary_));
  row.mask_first = static_cast<std::int32_t>(plan.masks.size());
  const auto mask = std::span(guide_words_).subspan(drafts_before * words, words);
  plan.masks.insert(plan.masks.end(), mask.begin(), mask.end());
}

}  // namespace levada::sched
