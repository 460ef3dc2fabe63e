#include "sched/brain.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/audit.h"

namespace levada::sched {

using core::Finish;
using core::FinishReason;

Brain::Brain(const Options& options, const Limits& limits, const core::KvLayout& layout,
             const text::Tokenizer* tokenizer, const Clock& clock, Metrics& metrics)
    : options_(options),
      limits_(limits),
      layout_(layout),
      tokenizer_(tokenizer),
      clock_(clock),
      metrics_(metrics),
      throughput_(metrics_.generation_throughput),
      acceptance_(metrics_),
      pool_(limits.total_pages),
      tree_(pool_, layout.page_size_tokens(), !options.disable_radix_cache),
      builder_(limits.vocab_size),
      has_draft_planes_(!layout.identity(core::kDraftGroup).empty()),
      bigram_keys_(layout.of_next_token()),
      draft_ledger_(limits.total_pages, layout.page_size_tokens()),
      pace_({.adaptive = options.speculative_adaptive}) {
  metrics_.page_size.set(layout_.page_size_tokens());
  metrics_.context_length.set(limits_.context_length_tokens);
  metrics_.max_total_tokens.set(static_cast<double>(limits_.total_pages) * layout_.page_size_tokens());
}

Brain::~Brain() = default;

Status Brain::check_fits(std::int32_t prompt_tokens) const {
  return sched::check_fits(layout_, limits_.context_length_tokens, limits_.total_pages, prompt_tokens);
}

Status Brain::door(const core::Request& request) const {
  LEVADA_RETURN_IF_ERROR(health_);
  if (live_.contains(request.id)) return {StatusCode::kAlreadyExists, "a request with this id is running"};
  if (request.prompt.empty()) return invalid_argument("the prompt is empty");
  LEVADA_RETURN_IF_ERROR(check_fits(static_cast<std::int32_t>(request.prompt.size())));
  for (const core::Token token : request.prompt) {
    if (token < 0 || token >= limits_.vocab_size)
      return invalid_argument("token id " + std::to_string(token) + " is outside the vocabulary of " +
                              std::to_string(limits_.vocab_size));
  }
  if (request.sampling.max_new_tokens < 0) return invalid_argument("must not be negative", "max_new_tokens");
  if (tokenizer_ == nullptr && !request.sampling.stop.empty())
    return invalid_argument("stop strings need a tokenizer, this server has none", "stop");
  const auto active = static_cast<std::int64_t>(live_.size()) - waiting_requests();
  const std::int64_t room = std::max<std::int64_t>(options_.max_running_requests - active, 0);
  if (waiting_requests() >= options_.max_queued_requests + room)
    return resource_exhausted("the queue is full: " + std::to_string(waiting_requests()) + " requests are waiting");
  return {};
}

void Brain::submit(core::Request request) {
  const auto refuse = [&](FinishReason reason, Status why) {
    core::OutputDelta delta;
    delta.request = request.id;
    delta.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
    delta.finish = Finish{reason, {}, std::move(why)};
    deltas_.push_back(std::move(delta));
  };
  if (Status refusal = door(request); !refusal.ok()) return refuse(FinishReason::kError, std::move(refusal));
  const bool asks_of_prompt = request.logprobs.has_value() || request.hidden != core::HiddenWish::kNone;
  if (request.sampling.max_new_tokens == 0 && !asks_of_prompt) return refuse(FinishReason::kLength, {});

  const core::RequestId id = request.id;
  const std::int32_t room = max_total_tokens(layout_, limits_.context_length_tokens, limits_.total_pages) -
                            static_cast<std::int32_t>(request.prompt.size());
  StopRules rules = make_stop_rules(request.sampling, limits_.eos_token_ids, room);
  kv::NamespaceRef name_space = tree_.intern(request.cache_namespace);
  auto state = std::make_unique<RequestState>(std::move(request), std::move(name_space), std::move(rules), tokenizer_);
  state->arrival = ++arrivals_;
  state->priority = priority_of(state->request);
  if (!hold_for_leader(*state)) waiting_.push_back(*state);
  live_.emplace(id, std::move(state));
}

std::int64_t Brain::priority_of(const core::Request& request) const {
  if (!options_.enable_priority_scheduling) return 0;
  const std::int64_t given = request.priority;
  return options_.schedule_low_priority_values_first ? -given : given;
}

bool Brain::hold_for_leader(RequestState& state) {
  if (!state.request.same_prompt || options_.disable_radix_cache) return false;
  const auto found = live_.find(*state.request.same_prompt);
  if (found == live_.end()) return false;
  RequestState& named = *found->second;
  // A leader that was aborted has left its followers to one of them.
  RequestState& leader = named.leader != nullptr ? *named.leader : named;
  if (leader.computed_tokens >= leader.prompt_tokens()) return false;
  leader.followers.push_back(&state);
  followers_.push_back(&state);
  state.leader = &leader;
  return true;
}

// The prompt is computed, or its request has ended before: then the next one computes it for the rest.
void Brain::release_followers(RequestState& leader, bool computed) {
  if (leader.followers.empty()) return;
  std::vector<RequestState*> followers = std::exchange(leader.followers, {});
  const auto free = computed ? followers.end() : followers.begin() + 1;
  for (auto it = free; it != followers.end(); ++it) (*it)->leader = followers.front();
  if (!computed) followers.front()->followers.assign(free, followers.end());
  // They have waited since their leader came.
  for (auto it = free; it != followers.begin();) {
    RequestState& state = **--it;
    state.leader = nullptr;
    std::erase(followers_, &state);
    waiting_.push_front(state);
  }
}

void Brain::abort(core::RequestId id, const Status& why) {
  const auto it = live_.find(id);
  if (it == live_.end()) return;
  RequestState& state = *it->second;
  ++aborts_;
  core::OutputDelta delta = delta_of(state);
  if (state.decoder) state.decoder->finish(delta.text);
  finish(state, Finish{FinishReason::kAbort, {}, why}, std::move(delta));
}

void Brain::abort_all(const Status& why) {
  for (const RequestState* state : live_by_arrival()) abort(state->request.id, why);
}

std::vector<RequestState*> Brain::live_by_arrival() const {
  std::vector<RequestState*> states;
  for (const auto& [id, state] : live_) states.push_back(state.get());
  std::sort(states.begin(), states.end(), [](auto* a, auto* b) { return a->arrival < b->arrival; });
  return states;
}

void Brain::flush_cache(std::function<void(Status)> done) {
  if (!live_.empty()) {
    return done(
        {StatusCode::kFailedPrecondition,
         "the cache can't be flushed: " + std::to_string(static_cast<std::int64_t>(live_.size()) - waiting_requests()) +
             " requests are running, " + std::to_string(waiting_requests()) + " are waiting"});
  }
  flushes_.push_back(std::move(done));
  flush_when_drained();
}

void Brain::flush_when_drained() {
  // Finished requests keep their pages until their last plan has been applied.
  if (flushes_.empty() || !draining_.empty()) return;
  tree_.clear();
  for (auto& done : std::exchange(flushes_, {})) done({});
}

Snapshot Brain::snapshot() const {
  Snapshot snapshot;
  snapshot.waiting = static_cast<std::int32_t>(waiting_requests());
  snapshot.prefilling = chunked_ != nullptr ? 1 : 0;
  snapshot.running = static_cast<std::int32_t>(running_.size());
  snapshot.total_pages = pool_.total_pages();
  snapshot.free_pages = pool_.free_pages();
  snapshot.leased_pages = pool_.leased_pages();
  snapshot.cached_pages = tree_.cached_pages();
  snapshot.evictable_pages = tree_.evictable_pages();
  snapshot.page_size_tokens = layout_.page_size_tokens();
  snapshot.steps = steps_;
  snapshot.retractions = retractions_;
  snapshot.aborts = aborts_;
  snapshot.evicted_tokens = static_cast<std::uint64_t>(tree_.evicted_tokens_total());
  snapshot.max_running_requests = static_cast<std::int32_t>(options_.max_running_requests);
  snapshot.generation_throughput = metrics_.generation_throughput.value();
  snapshot.cache_hit_rate = metrics_.cache_hit_rate.value();
  snapshot.draft = draft_;
  snapshot.speculation = speculation_;
  snapshot.speculation_note = speculation_note();
  snapshot.health = health_;
  return snapshot;
}

Status Brain::audit() const {
  std::vector<const kv::PageLease*> leases;
  const auto visit = [&](const RequestState& state) {
    leases.push_back(&state.pages.lease());
    return state.verify(layout_.page_size_tokens());
  };
  for (const auto& [id, state] : live_) LEVADA_RETURN_IF_ERROR(visit(*state));
  for (const auto& state : draining_) LEVADA_RETURN_IF_ERROR(visit(*state));
  LEVADA_RETURN_IF_ERROR(kv::audit(pool_, tree_, leases));
  const auto listed = static_cast<std::size_t>(waiting_requests()) + running_.size() + (chunked_ != nullptr ? 1 : 0);
  if (listed != live_.size()) return internal_error("a live request is in no queue, or in two");
  if (idle() && draining_.empty() && tree_.evictable_pages() != tree_.cached_pages())
    return internal_error("cached pages are locked though no request lives");
  return {};
}

std::vector<core::OutputDelta> Brain::take_deltas() { return std::exchange(deltas_, {}); }

void Brain::publish_metrics() {
  const double page = layout_.page_size_tokens();
  const double total = page * pool_.total_pages();
  const double available = page * pool_.free_pages(), evictable = page * tree_.evictable_pages();
  const double used = total - available - evictable;
  metrics_.running_requests.set(static_cast<double>(live_.size()) - static_cast<double>(waiting_requests()));
  metrics_.queued_requests.set(static_cast<double>(waiting_requests()));
  metrics_.available_tokens.set(available);
  metrics_.evictable_tokens.set(evictable);
  metrics_.used_tokens.set(used);
  metrics_.kv_used_tokens.set(used);
  metrics_.token_usage.set(total > 0 ? used / total : 0);
  const std::int64_t evicted = tree_.evicted_tokens_total();
  if (evicted > reported_evictions_) metrics_.evicted_tokens.add(static_cast<double>(evicted - reported_evictions_));
  reported_evictions_ = evicted;
  if (idle()) throughput_.on_idle();
}

}  // namespace levada::sched
