// What a computed step means: accepted tokens, finished answers, pages that become cache or go free.
#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "sched/brain.h"

namespace levada::sched {

using core::Finish;
using core::FinishReason;

void Brain::apply(const core::StepResult& result) {
  LEVADA_CHECK(!flights_.empty() && flights_.front().step == result.step, "results come in the order of their plans");
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  Status status = result.status;
  if (status.ok()) status = complete(flight, result);
  deltas_.reserve(deltas_.size() + flight.rows.size());
  for (const FlightRow& row : flight.rows) apply_row(row, result, status);
  if (result.executor_lost) lose(status);
  if (status.ok()) throughput_.add(flight.samples, clock_.now_us());
  flush_when_drained();
}

Status Brain::complete(const Flight& flight, const core::StepResult& result) {
  const auto count = [](const auto& given) { return static_cast<std::int32_t>(given.size()); };
  if (count(result.sampled) != flight.samples)
    return internal_error("the executor returned " + std::to_string(result.sampled.size()) + " tokens for " +
                          std::to_string(flight.samples) + " samples");
  if ((flight.logprobs && count(result.sampled_logprobs) != flight.samples) || count(result.scored) != flight.scores ||
      count(result.hidden) != flight.hidden)
    return internal_error("the executor left out log probabilities or hidden states");
  return {};
}

void Brain::keep_wishes(const FlightRow& row, const core::StepResult& result) {
  RequestState& state = *row.state;
  const auto scores =
      std::span(result.scored)
          .subspan(static_cast<std::size_t>(row.scores_first), static_cast<std::size_t>(row.scores_count));
  state.fresh_scores.insert(state.fresh_scores.end(), scores.begin(), scores.end());
  if (row.hidden < 0) return;
  const std::vector<float>& hidden = result.hidden[static_cast<std::size_t>(row.hidden)];
  state.fresh_hidden.insert(state.fresh_hidden.end(), hidden.begin(), hidden.end());
}

void Brain::apply_row(const FlightRow& row, const core::StepResult& result, const Status& status) {
  RequestState& state = *row.state;
  --state.plans_in_flight;
  if (state.phase == Phase::kDraining) {  // an overrun row: its result is nobody's
    if (state.plans_in_flight == 0) retire(state);
    return;
  }
  state.pages.on_step_applied(result.step);
  if (row.sample >= 0) --state.pending_samples;
  if (!status.ok()) {
    state.may_commit = false;
    return finish(state, Finish{FinishReason::kError, {}, status}, delta_of(state));
  }
  const bool was_prefill = state.computed_tokens < state.input_tokens;
  state.computed_tokens = row.end_tokens;
  keep_wishes(row, result);
  if (was_prefill) commit(state);
  if (state.computed_tokens >= state.prompt_tokens()) release_followers(state, true);
  if (row.sample >= 0) {
    const auto sample = static_cast<std::size_t>(row.sample);
    const bool told = state.request.logprobs.has_value();
    if (!accept(state, result.sampled[sample], told ? &result.sampled_logprobs[sample] : nullptr)) return;
  }
  if (state.retract_pending && state.plans_in_flight == 0) complete_retraction(state);
}

bool Brain::accept(RequestState& state, core::Token token, const core::TokenLogprob* logprob) {
  core::OutputDelta delta = delta_of(state);
  delta.prompt_logprobs = std::exchange(state.fresh_scores, {});
  delta.hidden = std::exchange(state.fresh_hidden, {});
  if (token < 0 || token >= limits_.vocab_size) {
    state.may_commit = false;
    Status broken = internal_error("the model returned token id " + std::to_string(token) + ", outside the vocabulary");
    finish(state, Finish{FinishReason::kError, {}, std::move(broken)}, std::move(delta));
    return false;
  }
  if (state.prompt_only()) {
    finish(state, Finish{FinishReason::kLength, {}, {}}, std::move(delta));
    return false;
  }
  const std::span<const core::Token> fresh(&token, 1);
  FinishVerdict verdict = finish_rule(state.stop_rules, fresh, state.produced(), state.text_decoder(), delta.text);
  const auto kept = fresh.first(static_cast<std::size_t>(verdict.cut));
  state.tokens.insert(state.tokens.end(), kept.begin(), kept.end());
  delta.token_ids.assign(kept.begin(), kept.end());
  if (logprob != nullptr && !kept.empty()) delta.logprobs.push_back(*logprob);
  delta.completion_tokens = state.produced();
  if (Status guided = guide(state, kept); !guided.ok()) verdict.finish = Finish{FinishReason::kError, {}, guided};
  if (verdict.finish) {
    finish(state, std::move(*verdict.finish), std::move(delta));
    return false;
  }
  deltas_.push_back(std::move(delta));
  return true;
}

Status Brain::guide(const RequestState& state, std::span<const core::Token> kept) {
  for (const core::Token token : kept) {
    if (state.request.guide) LEVADA_RETURN_IF_ERROR(state.request.guide->accept(token));
  }
  return {};
}

// Only tokens of applied plans: their KV is written. The newest token has none yet.
void Brain::commit(RequestState& state) {
  if (!state.may_commit) return;
  const std::int32_t written = std::min(state.computed_tokens, state.known_tokens());
  state.pages.commit(tree_, state.key(written),
                     state.plans_in_flight > 0 ? std::optional(state.last_plan) : std::nullopt);
}

void Brain::lose(const Status& why) {
  if (!health_.ok()) return;
  health_ = unavailable(why.message() + "; the server must be restarted");
  for (RequestState* state : live_by_arrival()) {
    state->may_commit = false;
    finish(*state, Finish{FinishReason::kError, {}, why}, delta_of(*state));
  }
}

void Brain::finish(RequestState& state, Finish finish, core::OutputDelta delta) {
  delta.finish = std::move(finish);
  deltas_.push_back(std::move(delta));
  release_followers(state, false);
  leave_queues(state);
  state.phase = Phase::kDraining;
  const auto it = live_.find(state.request.id);
  draining_.push_back(std::move(it->second));
  live_.erase(it);
  if (state.plans_in_flight == 0) retire(state);
}

void Brain::leave_queues(RequestState& state) {
  if (state.leader != nullptr) {
    std::erase(state.leader->followers, &state);
    std::erase(followers_, &state);
    state.leader = nullptr;
  }
  if (state.phase == Phase::kWaiting) waiting_.remove(state);
  if (chunked_ == &state) chunked_ = nullptr;
  if (const auto it = std::find(running_.begin(), running_.end(), &state); it != running_.end()) running_.erase(it);
}

void Brain::retire(const RequestState& state) {
  const auto it = std::find_if(draining_.begin(), draining_.end(), [&](auto& owned) { return owned.get() == &state; });
  LEVADA_CHECK(it != draining_.end(), "a request goes once, after its last plan");
  commit(**it);
  draining_.erase(it);
}

core::OutputDelta Brain::delta_of(const RequestState& state) const {
  core::OutputDelta delta;
  delta.request = state.request.id;
  delta.prompt_tokens = state.prompt_tokens();
  delta.cached_tokens = state.cached_tokens;
  delta.completion_tokens = state.produced();
  return delta;
}

}  // namespace levada::sched
