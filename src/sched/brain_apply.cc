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
  accepted_tokens_ = 0;
  for (const FlightRow& row : flight.rows) apply_row(flight, row, result, status);
  if (result.executor_lost) lose(status);
  if (status.ok()) measure(flight);
  finish_swaps();
  flush_when_drained();
}

void Brain::measure(const Flight& flight) {
  const std::int64_t now = clock_.now_us();
  throughput_.add(accepted_tokens_, now);
  const std::int64_t begun = std::max(flight.planned_us, std::exchange(last_apply_us_, now));
  const auto requests = static_cast<std::int32_t>(flight.rows.size());
  const auto drafts = static_cast<std::int32_t>(flight.drafts.size());
  const bool proposed_only = drafts == 0 && flight.proposed > 0;  // neither plain nor a verification
  if (flight.decode_only && !proposed_only)
    pace_.on_step(requests, requests + drafts, static_cast<double>(now - begun) / 1e6);
}

Status Brain::complete(const Flight& flight, const core::StepResult& result) {
  const auto count = [](const auto& given) { return static_cast<std::int32_t>(given.size()); };
  if (count(result.proposed) != flight.proposed) return internal_error("the executor left out proposals");
  if (count(result.sampled) != flight.samples)
    return internal_error("the executor returned " + std::to_string(result.sampled.size()) + " tokens for " +
                          std::to_string(flight.samples) + " samples");
  if ((flight.logprobs && count(result.sampled_logprobs) != flight.samples) || count(result.scored) != flight.scores ||
      count(result.hidden) != flight.hidden)
    return internal_error("the executor left out log probabilities or hidden states");
  return {};
}

void Brain::keep_wishes(const FlightRow& row, const core::StepResult& result, std::int32_t rejected) {
  RequestState& state = *row.state;
  const auto scores =
      std::span(result.scored)
          .subspan(static_cast<std::size_t>(row.scores_first), static_cast<std::size_t>(row.scores_count));
  state.fresh_scores.insert(state.fresh_scores.end(), scores.begin(), scores.end());
  if (row.hidden < 0) return;
  const std::vector<float>& hidden = result.hidden[static_cast<std::size_t>(row.hidden)];
  const auto cut = static_cast<std::ptrdiff_t>(hidden.size() / static_cast<std::size_t>(row.hidden_rows)) * rejected;
  state.fresh_hidden.insert(state.fresh_hidden.end(), hidden.begin(), hidden.end() - cut);
  state.hidden_from -= rejected;  // their places will be computed again
}

void Brain::apply_row(const Flight& flight, const FlightRow& row, const core::StepResult& result,
                      const Status& status) {
  RequestState& state = *row.state;
  --state.plans_in_flight;
  if (state.phase == Phase::kDraining) {  // an overrun row: its result is nobody's
    if (state.plans_in_flight == 0) retire(state);
    return;
  }
  state.pages.on_step_applied(result.step);
  if (row.sample >= 0) state.pending_samples -= 1 + row.drafts;
  if (!status.ok()) {
    state.may_commit = false;
    return finish(state, Finish{FinishReason::kError, {}, status}, delta_of(state));
  }
  const bool was_prefill = state.computed_tokens < state.input_tokens;
  std::int32_t accepted = 0;
  if (row.drafts > 0) {
    const auto sampled = std::span(result.sampled).subspan(static_cast<std::size_t>(row.sample));
    accepted = core::accepted_drafts(
        sampled, std::span(flight.drafts)
                     .subspan(static_cast<std::size_t>(row.drafts_first), static_cast<std::size_t>(row.drafts)));
    state.planned_tokens = row.end_tokens - (row.drafts - accepted);
  }
  state.computed_tokens = row.end_tokens - (row.drafts - accepted);
  keep_wishes(row, result, row.drafts - accepted);
  if (was_prefill) commit(state);
  if (state.computed_tokens >= state.prompt_tokens()) release_followers(state, true);
  if (row.sample >= 0) {
    if (!was_prefill) judge_drafts(state, row, accepted);
    if (!accept(state, row, result, accepted)) return;
    take_proposals(state, row, result);
  }
  if (state.retract_pending && state.plans_in_flight == 0) complete_retraction(state);
}

bool Brain::accept(RequestState& state, const FlightRow& row, const core::StepResult& result, std::int32_t accepted) {
  core::OutputDelta delta = delta_of(state);
  delta.prompt_logprobs = std::exchange(state.fresh_scores, {});
  delta.hidden = std::exchange(state.fresh_hidden, {});
  const auto first = static_cast<std::size_t>(row.sample), count = static_cast<std::size_t>(1 + accepted);
  const std::span<const core::Token> fresh = std::span(result.sampled).subspan(first, count);
  for (const core::Token token : fresh) {
    if (token >= 0 && token < limits_.vocab_size) continue;
    state.may_commit = false;
    Status broken = internal_error("the model returned token id " + std::to_string(token) + ", outside the vocabulary");
    finish(state, Finish{FinishReason::kError, {}, std::move(broken)}, std::move(delta));
    return false;
  }
  if (state.prompt_only()) {
    finish(state, Finish{FinishReason::kLength, {}, {}}, std::move(delta));
    return false;
  }
  FinishVerdict verdict = finish_rule(state.stop_rules, fresh, state.produced(), state.text_decoder(), delta.text);
  const auto kept = fresh.first(static_cast<std::size_t>(verdict.cut));
  state.tokens.insert(state.tokens.end(), kept.begin(), kept.end());
  accepted_tokens_ += verdict.cut;
  delta.token_ids.assign(kept.begin(), kept.end());
  cut_wishes(state, row, result, kept.size(), delta);
  delta.completion_tokens = state.produced();
  if (Status guided = guide(state, kept); !guided.ok()) verdict.finish = Finish{FinishReason::kError, {}, guided};
  if (verdict.finish) {
    finish(state, std::move(*verdict.finish), std::move(delta));
    return false;
  }
  deltas_.push_back(std::move(delta));
  learn(state, kept);
  return true;
}

// Of the row's tokens only the first `kept` belong to the answer, and so does what was asked of them.
void Brain::cut_wishes(const RequestState& state, const FlightRow& row, const core::StepResult& result,
                       std::size_t kept, core::OutputDelta& delta) {
  if (state.request.logprobs) {
    const auto first = result.sampled_logprobs.begin() + row.sample;
    delta.logprobs.assign(first, first + static_cast<std::ptrdiff_t>(kept));
  }
  if (row.drafts == 0 || row.hidden < 0) return;
  const std::size_t width =
      result.hidden[static_cast<std::size_t>(row.hidden)].size() / static_cast<std::size_t>(row.hidden_rows);
  delta.hidden.resize(kept * width);
}

Status Brain::guide(const RequestState& state, std::span<const core::Token> kept) {
  for (const core::Token token : kept) {
    if (state.request.guide) LEVADA_RETURN_IF_ERROR(state.request.guide->accept(token));
  }
  return {};
}

// Only tokens of applied plans: their KV is written. The newest token has none yet; by bigrams the one before it is kept with
// it, because its draft planes were written for that one.
void Brain::commit(RequestState& state) {
  if (!state.may_commit) return;
  const std::int32_t written = std::min(state.computed_tokens, state.known_tokens());
  state.draft_version = core::kNoDraft;  // other pages may stand in its table now
  state.pages.commit(tree_, state.key(written, bigram_keys_),
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
  delta.speculation = state.speculation;
  return delta;
}

}  // namespace levada::sched
