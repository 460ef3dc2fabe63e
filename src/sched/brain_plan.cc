// What the next step computes: room for running answers first, then new prompts, then the plan.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/brain.h"

namespace levada::sched {
namespace {

bool runs_before(const RequestState& a, const RequestState& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.admission < b.admission;
}

}  // namespace

std::unique_ptr<core::StepPlan> Brain::next_plan() {
  const std::size_t most_in_flight = options_.disable_overlap_schedule ? 1 : 2;
  if (flights_.size() >= most_in_flight || live_.empty()) return nullptr;
  // What came after a flush must not read the cache before it. A flush waits for a plan in flight, so this ends.
  if (!flushes_.empty()) return nullptr;
  // What requests have drafted and accepted is known when that step is done: then all go on together.
  if (!flights_.empty() && flights_.back().speculative) return nullptr;
  preempt_for_head();
  make_room();
  admit();
  if (decode_rows_.empty() && prefill_rows_.empty()) return nullptr;
  build(core::StepId{steps_ + 1});
  flights_.push_back(builder_.take_flight());
  ++steps_;
  return builder_.take_plan();
}

// A waiting request of so much higher priority takes the place of the lowest and youngest one. One at a time: the head is
// tried again when the victim's pages are back.
void Brain::preempt_for_head() {
  if (!std::exchange(head_refused_, false) || waiting_.empty() || running_.empty()) return;
  RequestState& victim = youngest();
  if (waiting_.front().priority - victim.priority > options_.priority_scheduling_preemption_threshold) retract(victim);
}

// Oldest first of the highest priority: a page shortage is paid from the other end, so the first always advances.
void Brain::make_room() {
  decode_rows_.clear();
  pages_short_ = false;
  // Whoever runs, and whoever may be admitted to this step, has a sample of its own.
  const std::int64_t sampling = std::min<std::int64_t>(
      options_.max_running_requests, static_cast<std::int64_t>(running_.size()) + waiting_.size() + (chunked_ ? 1 : 0));
  drafts_left_ = proposals_left_ = static_cast<std::int32_t>(std::max<std::int64_t>(limits_.max_samples - sampling, 0));
  // obtain_page() may take requests out of running_, but only younger ones or the one at hand.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    RequestState& state = *running_[i];
    if (!state.wants_decode() || !prepare_drafts(state)) continue;
    const bool has_page = state.planned_tokens < state.pages.size() * layout_.page_size_tokens();
    if (!has_page && !obtain_page(state)) continue;
    obtain_draft_pages(state, state.planned_tokens + 1);
    spend_draft_budget(state);
    decode_rows_.push_back(&state);
  }
}

bool Brain::obtain_page(RequestState& state) {
  for (;;) {
    if (auto page = allocate(1)) {
      state.pages.grow(std::move(*page));
      return true;
    }
    pages_short_ = true;
    if (release_is_coming()) return false;
    RequestState& victim = youngest();
    LEVADA_CHECK(&victim != &state || running_.size() > 1 || chunked_ != nullptr, "a lone request fits the pool");
    const bool self = &victim == &state;
    retract(victim);
    if (self) return false;
  }
}

void Brain::run(RequestState& state) {
  state.phase = Phase::kRunning;
  const auto before = [](const RequestState* a, const RequestState* b) { return runs_before(*a, *b); };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &state, before), &state);
}

std::optional<kv::PageLease> Brain::allocate(std::int32_t pages) {
  if (pool_.free_pages() < pages) tree_.evict(pages - pool_.free_pages());
  return pool_.try_allocate(pages);
}

bool Brain::release_is_coming() const {
  const auto releases = [](const RequestState* state) {
    return state->retract_pending || state->last_token_planned() || state->pages.release_is_coming();
  };
  return !draining_.empty() || (chunked_ != nullptr && releases(chunked_)) ||
         std::any_of(running_.begin(), running_.end(), releases);
}

RequestState& Brain::youngest() const {
  LEVADA_CHECK(!running_.empty(), "somebody runs");
  RequestState* last = running_.back();
  return chunked_ != nullptr && runs_before(*last, *chunked_) ? *chunked_ : *last;
}

void Brain::retract(RequestState& state) {
  state.retract_pending = true;
  ++state.retractions;
  ++retractions_;
  metrics_.retracted_requests.add();
  if (state.plans_in_flight == 0) complete_retraction(state);
}

void Brain::complete_retraction(RequestState& state) {
  commit(state);
  leave_queues(state);
  state.pages = RequestPages();
  state.planned_tokens = state.computed_tokens = 0;
  state.drafts.clear();
  state.retract_pending = false;
  state.phase = Phase::kWaiting;
  waiting_.push_front(state);
}

void Brain::admit() {
  prefill_rows_.clear();
  admitted_input_tokens_ = admitted_cached_tokens_ = 0;
  if (pages_short_ || (chunked_ == nullptr && waiting_.empty())) return;
  PrefillAdmission admission(layout_, admission_limits());
  if (chunked_ != nullptr && !continue_chunk(admission)) return;
  if (options_.schedule_policy == "lpm")
    waiting_.order_by_prefix([&](const RequestState& s) { return cached_prefix(s).tokens; });
  while (!waiting_.empty() && admit_head(admission)) {
  }
  if (admitted_input_tokens_ > 0)
    metrics_.cache_hit_rate.set(static_cast<double>(admitted_cached_tokens_) /
                                static_cast<double>(admitted_input_tokens_));
}

AdmissionLimits Brain::admission_limits() const {
  AdmissionLimits limits;
  const auto active = static_cast<std::int32_t>(running_.size()) + (chunked_ != nullptr ? 1 : 0);
  limits.request_slots = static_cast<std::int32_t>(options_.max_running_requests) - active;
  limits.input_tokens = options_.max_prefill_tokens;
  if (options_.chunked_prefill_size > 0) limits.chunk_tokens = options_.chunked_prefill_size;
  limits.reserved_pages = reserved_pages();
  return limits;
}

// What running requests will probably take: most answers end before their limit, so only a share is reserved, and who
// took too much risk is retracted.
std::int64_t Brain::reserved_pages() const {
  const double share = std::min(0.7 * options_.schedule_conservativeness, 1.0);
  const auto of = [&](const RequestState& state) {
    const std::int32_t left = std::clamp(state.new_tokens_left(), 0, PrefillAdmission::kMaxNewTokensEstimate);
    const std::int32_t input = std::max(state.input_tokens, state.known_tokens() + state.pending_samples);
    return pages_to_come(layout_, input + static_cast<std::int64_t>(left * share), state.pages.size());
  };
  std::int64_t pages = chunked_ != nullptr ? of(*chunked_) : 0;
  for (const RequestState* state : running_) pages += of(*state);
  return pages;
}

bool Brain::continue_chunk(PrefillAdmission& admission) {
  RequestState& state = *chunked_;
  if (state.retract_pending) return false;
  const std::int32_t extend = admission.continue_chunk(state.planned_tokens, state.input_tokens);
  auto pages =
      allocate(static_cast<std::int32_t>(pages_to_come(layout_, state.planned_tokens + extend, state.pages.size())));
  if (!pages) return false;  // running requests end or retract this one
  state.pages.grow(std::move(*pages));
  prefill_rows_.push_back({&state, extend});
  if (state.planned_tokens + extend == state.input_tokens) {
    chunked_ = nullptr;
    run(state);
  }
  return true;
}

kv::PrefixMatch Brain::cached_prefix(const RequestState& state) {
  const std::int32_t most = state.first_needed_row();
  return most > 0 ? tree_.match(state.key(most, bigram_keys_)) : kv::PrefixMatch{};
}

bool Brain::admit_head(PrefillAdmission& admission) {
  RequestState& state = waiting_.front();
  const kv::PrefixMatch match = cached_prefix(state);
  RequestPages pages(tree_, match);  // locked while the policy counts what is evictable
  const AdmissionVerdict verdict = admission.try_add({match.tokens, state.known_tokens(), state.new_tokens_left()},
                                                     pool_.free_pages() + tree_.evictable_pages());
  if (verdict.extend_tokens == 0) {
    const bool coming = chunked_ != nullptr && chunked_->retract_pending;
    head_refused_ =
        !coming && std::none_of(running_.begin(), running_.end(), [](auto* s) { return s->retract_pending; });
    return false;
  }
  auto own =
      allocate(static_cast<std::int32_t>(pages_to_come(layout_, match.tokens + verdict.extend_tokens, pages.size())));
  LEVADA_CHECK(own.has_value(), "what was admitted has its pages");
  pages.grow(std::move(*own));
  waiting_.pop_front();
  state.pages = std::move(pages);
  on_admitted(state, match.tokens, verdict.extend_tokens);
  return verdict.reason == AdmissionReason::kContinue;
}

void Brain::on_admitted(RequestState& state, std::int32_t prefix_tokens, std::int32_t extend_tokens) {
  state.admission = ++admissions_;
  state.input_tokens = state.known_tokens();
  state.planned_tokens = state.computed_tokens = prefix_tokens;
  state.draft_version = core::kNoDraft;  // what its pages hold for the draft is looked up anew
  admitted_input_tokens_ += state.input_tokens;
  admitted_cached_tokens_ += prefix_tokens;
  if (!state.ever_admitted) {
    state.ever_admitted = true;
    state.cached_tokens = prefix_tokens;
    metrics_.queue_time_seconds.observe(
        static_cast<double>(std::max<std::int64_t>(clock_.now_us() - state.request.arrival_us, 0)) / 1e6);
  }
  prefill_rows_.push_back({&state, extend_tokens});
  if (prefix_tokens + extend_tokens == state.input_tokens) {
    run(state);
  } else {
    state.phase = Phase::kPrefilling;
    chunked_ = &state;
  }
}

void Brain::build(core::StepId step) {
  builder_.begin(step, draft_.version, clock_.now_us());
  const auto add = [&](RequestState& state, auto add_rows) {
    note_draft_planes(state);
    const std::int32_t first = state.planned_tokens;
    add_rows(state);
    note_draft_written(state, first);
  };
  for (RequestState* state : decode_rows_) add(*state, [&](RequestState& s) { builder_.add_decode(s); });
  for (const PrefillRow& row : prefill_rows_) {
    add(*row.state, [&](RequestState& s) {
      prepare_first_proposal(s, s.planned_tokens + row.extend_tokens);
      builder_.add_prefill(s, row.extend_tokens);
    });
  }
}

}  // namespace levada::sched
