#include <algorithm>

#include "fanout/admission.h"
#include "fanout/machine.h"
#include "fanout/once.h"

namespace levada::fanout {

namespace {

constexpr std::int64_t kMaxPerCall = 1024;

std::string text(std::int64_t number) { return std::to_string(number); }

}  // namespace

CaptureOrder Machine::order_of(std::int64_t p, std::int64_t priority) const {
  const EntryRow& row = state_.entry(p).row;
  CaptureOrder order;
  order.source_index = p;
  order.source_sample_id = state_.config().sources[static_cast<std::size_t>(p)].sample_id;
  order.generation = row.generation;
  order.priority = priority;
  for (const Consumer& c : state_.consumers) {
    if (state_.has_needs(c) && (state_.next_quantum(c).contains(p) || c.wait.contains(p))) {
      order.demand_consumers.push_back(c.row.consumer_id);
    }
  }
  order.reserved_bytes = row.reserved_bytes;
  order.attempt = row.attempt;
  order.replace = row.attempt > 0;
  order.nonce = row.nonce;
  return order;
}

Outcome<ClaimReply> Machine::on(const ClaimRequest& request, std::int64_t now_us) {
  if (request.worker.empty() || request.claim_id == 0) {
    return Error{ErrorCode::kBadRequest, "a claim names its worker and a claim_id other than 0"};
  }
  if (request.max_requests < 1) return Error{ErrorCode::kBadRequest, "max_requests must be at least 1"};
  ClaimReply reply;
  for (const std::int64_t p : state_.present()) {  // a repeated claim
    const Entry& e = state_.entry(p);
    if (e.row.state == EntryState::kCapturing && !e.retry_due && e.row.worker == request.worker &&
        e.row.claim_id == request.claim_id) {
      reply.requests.push_back(order_of(p, 0));
    }
  }
  reply.drain = !state_.is_active();
  if (reply.drain) state_.note_shortage(Shortage::kNone, now_us);
  if (!reply.requests.empty() || reply.drain) return reply;
  while (static_cast<std::int64_t>(reply.requests.size()) < std::min(request.max_requests, kMaxPerCall)) {
    const auto pick = next_capture(state_, now_us);
    if (!pick) break;
    if (pick->turn_of >= 0) {
      const auto n = static_cast<std::int64_t>(state_.consumers.size());
      state_.count(Count::kSchedulerCursor) = (pick->turn_of + 1) % n;
    }
    claim(state_, pick->position, request.worker, request.server, request.claim_id, now_us);
    reply.requests.push_back(order_of(pick->position, pick->priority));
  }
  state_.note_shortage(reply.requests.empty() ? shortage(state_, now_us) : Shortage::kNone, now_us);
  return reply;
}

Outcome<EntryReply> Machine::on(const MarkCommittingRequest& request, std::int64_t now_us) {
  const std::int64_t p = request.source_index;
  if (!is_position(p)) return Error{ErrorCode::kBadRequest, "source_index is not in the plan: " + text(p)};
  Entry& e = state_.entry(p);
  const bool mine = e.row.generation == request.generation && e.row.nonce == request.nonce;
  if (mine && (e.row.state == EntryState::kCommitting || e.row.state == EntryState::kReady)) {
    return EntryReply{EntryState::kCommitting};
  }
  if (!mine || e.row.state != EntryState::kCapturing || e.retry_due) return stale(p, request.generation, false, now_us);
  const Source& source = state_.config().sources[static_cast<std::size_t>(p)];
  if (!request.ref || request.ref->sample_id != source.sample_id || request.ref->store_id != state_.run.store_id ||
      request.ref->generation != request.generation) {
    return Error{ErrorCode::kBadRequest, "ref names another store, sample or generation than position " + text(p) +
                                             " has (" + state_.run.store_id + ", " + source.sample_id + ", " +
                                             text(request.generation) + ")"};
  }
  if (request.bytes < 0) return Error{ErrorCode::kBadRequest, "bytes must be at least 0"};
  if (request.bytes > e.row.reserved_bytes || request.ref->num_tokens > source.ntokens) {
    const std::string error = "the capture holds " + text(request.bytes) + " bytes of " +
                              text(request.ref->num_tokens) + " tokens, reserved were " + text(e.row.reserved_bytes) +
                              " of " + text(source.ntokens);
    burn(state_, p, false, now_us);
    give_up(state_, p, error);
    state_.touch(p);
    return EntryReply{EntryState::kFailed};
  }
  mark_committing(state_, p, request.ref, request.bytes);
  return EntryReply{EntryState::kCommitting};
}

Outcome<EntryReply> Machine::on(const CompleteCaptureRequest& request, std::int64_t now_us) {
  const std::int64_t p = request.source_index;
  if (!is_position(p)) return Error{ErrorCode::kBadRequest, "source_index is not in the plan: " + text(p)};
  Entry& e = state_.entry(p);
  if (e.row.generation == request.generation && e.row.nonce == request.nonce) {
    if (e.row.state == EntryState::kCommitting) {
      complete(state_, p, now_us);
      state_.touch(p);
      return EntryReply{EntryState::kReady};
    }
    if (e.row.state == EntryState::kReady || e.row.state == EntryState::kEvicting)
      return EntryReply{EntryState::kReady};
  }
  return stale(p, request.generation, false, now_us);
}

// Whatever a stale attempt wrote must go; if the removal of its generation is over, it starts again, on every server. Not
// the keys of the generation that is live.
Error Machine::stale(std::int64_t p, std::int64_t generation, bool may_write_later, std::int64_t now_us) {
  const EntryRow& row = state_.entry(p).row;
  const Error error{ErrorCode::kStaleGeneration, "this attempt at generation " + text(generation) + " of position " +
                                                     text(p) + " is over: remove what it wrote"};
  const bool is_present = state_.is_live(p) && row.generation == generation;
  if (is_present && may_write_later) await_late_write(state_, p, now_us);
  const bool was_never_sent = row.state == EntryState::kQueued && row.generation == generation;
  if (is_present || was_never_sent || generation < 1 || generation > row.generation) return error;
  const GarbageKey key{p, generation};
  const auto [found, is_new] = state_.garbage.try_emplace(key);
  Garbage& garbage = found->second;
  if (is_new) {
    garbage.row.source_index = p;
    garbage.row.generation = generation;
    garbage.row.late = true;
    garbage.since_us = now_us;
  }
  if (may_write_later) {
    garbage.row.quarantined = true;
    garbage.not_before_us = std::max(garbage.not_before_us, now_us + state_.config().times.capture_timeout_us);
  }
  state_.mark(key);
  return error;
}

Outcome<FailCaptureReply> Machine::on(const FailCaptureRequest& request, std::int64_t now_us) {
  const std::int64_t p = request.source_index;
  if (!is_position(p)) return Error{ErrorCode::kBadRequest, "source_index is not in the plan: " + text(p)};
  Entry& e = state_.entry(p);
  const bool mine = e.row.generation == request.generation && e.row.nonce == request.nonce;
  const bool under_way =
      (e.row.state == EntryState::kCapturing && !e.retry_due) || e.row.state == EntryState::kCommitting;
  if (!mine || !under_way) {  // told already, or given up by the registry
    const bool may_write_later = request.written == Written::kMaybe;
    if (!mine || may_write_later) (void)stale(p, request.generation, may_write_later, now_us);
    return FailCaptureReply{e.row.state, false};
  }
  state_.touch(p);
  state_.count(Count::kCaptureFailures) += 1;
  const bool retries_left = request.retryable && e.row.retry_count < state_.config().max_capture_retries;
  const bool reply_lost = request.written == Written::kMaybe && e.row.state == EntryState::kCapturing;
  if (retries_left && reply_lost && state_.config().servers_keep_journal) {
    e.row.retry_count += 1;
    e.row.last_error = request.error;
    state_.count(Count::kRetries) += 1;
    keep_for_retry(state_, p, now_us);
    return FailCaptureReply{EntryState::kCapturing, true};
  }
  if (!request.retryable) e.row.retry_count = state_.config().max_capture_retries;
  // Only a lost reply leaves a writer that may still be at work.
  burn(state_, p, reply_lost, now_us);
  retry_or_give_up(p, request.error, now_us);
  return FailCaptureReply{state_.entry(p).row.state, state_.entry(p).row.state != EntryState::kFailed};
}

void Machine::retry_or_give_up(std::int64_t p, const std::string& error, std::int64_t now_us) {
  Entry& e = state_.entry(p);
  if (e.row.retry_count >= state_.config().max_capture_retries) {
    give_up(state_, p, error);
    return;
  }
  e.row.retry_count += 1;
  e.row.last_error = error;
  state_.count(Count::kRetries) += 1;
  if (state_.is_wanted(p)) enqueue(state_, p);
  e.not_before_us = now_us + state_.config().times.retry_backoff_us;
  state_.mark_entry(p);
}

bool Machine::is_drained() const { return !state_.is_active() && state_.present().empty() && state_.garbage.empty(); }

Outcome<RemovalsReply> Machine::on(const RemovalsRequest& request, std::int64_t now_us) {
  if (request.max_removals < 1) return Error{ErrorCode::kBadRequest, "max_removals must be at least 1"};
  RemovalsReply reply;
  const auto limit = static_cast<std::size_t>(std::min(request.max_removals, kMaxPerCall));
  const std::int64_t until = now_us + state_.config().times.lease_ttl_us;
  for (const std::int64_t p : state_.present()) {
    Entry& e = state_.entry(p);
    if (reply.removals.size() == limit) break;
    if (e.row.state != EntryState::kEvicting || e.not_before_us > now_us || e.deadline_us > now_us) continue;
    e.deadline_us = until;
    reply.removals.push_back({p, state_.config().sources[static_cast<std::size_t>(p)].sample_id, e.row.generation,
                              state_.config().feature_names, e.row.servers, e.row.ref ? e.row.ref->store_url : "",
                              false});
  }
  for (auto& [key, garbage] : state_.garbage) {
    if (reply.removals.size() == limit) break;
    if (garbage.not_before_us > now_us || garbage.handed_until_us > now_us) continue;
    garbage.handed_until_us = until;
    reply.removals.push_back(
        {key.source_index, state_.config().sources[static_cast<std::size_t>(key.source_index)].sample_id,
         key.generation, state_.config().feature_names, garbage.row.servers, garbage.row.store_url, true});
  }
  reply.drained = is_drained();
  return reply;
}

Outcome<EntryReply> Machine::on(const FinishEvictionRequest& request, std::int64_t now_us) {
  const std::int64_t p = request.source_index;
  if (!is_position(p)) return Error{ErrorCode::kBadRequest, "source_index is not in the plan: " + text(p)};
  Entry& e = state_.entry(p);
  const std::string error = request.failed_keys.empty() ? "" : "not removed: " + request.failed_keys.front();
  const std::int64_t again = now_us + state_.config().times.removal_interval_us;
  const GarbageKey key{p, request.generation};
  if (const auto found = state_.garbage.find(key); found != state_.garbage.end()) {
    state_.mark(key);
    if (!error.empty()) {
      found->second.row.tries += 1;
      found->second.row.last_error = error;
      found->second.not_before_us = again;
      found->second.handed_until_us = 0;
    } else {
      if (!found->second.row.late) state_.count_live(-1, -found->second.row.bytes);
      state_.reclaim_time.note(now_us - found->second.since_us);
      state_.garbage.erase(found);
    }
  } else if (e.row.state == EntryState::kEvicting && e.row.generation == request.generation) {
    if (!error.empty()) {
      e.removal_tries += 1;
      e.row.last_error = error;
      e.not_before_us = again;
      e.deadline_us = 0;
      state_.mark_entry(p);
    } else {
      finish_removal(state_, p, now_us);
    }
  }
  return EntryReply{e.row.state};
}

Outcome<ServerLostReply> Machine::on(const ServerLostRequest& request, std::int64_t now_us) {
  ServerLostReply reply;
  const std::vector<std::int64_t> present(state_.present().begin(), state_.present().end());
  for (const std::int64_t p : present) {
    const EntryRow& row = state_.entry(p).row;
    if (row.state != EntryState::kReady || !row.ref || row.ref->store_url != request.store_url) continue;
    if (request.incarnation != 0 && row.ref->incarnation == request.incarnation) continue;
    for (Consumer& c : state_.consumers) take_back(c, p);
    burn(state_, p, false, now_us);
    reply.lost += 1;
  }
  return reply;
}

Outcome<SnapshotReply> Machine::on(const SnapshotRequest&, std::int64_t now_us) { return snapshot(now_us); }

Outcome<OkReply> Machine::on(const DrainRequest&, std::int64_t) {
  if (state_.is_active()) {
    state_.run.status = RunStatus::kDraining;
    state_.mark_run();
    state_.touch_all();
  }
  return OkReply{};
}

Outcome<OkReply> Machine::on(const AbortRequest& request, std::int64_t) {
  if (state_.run.status == RunStatus::kActive || state_.run.status == RunStatus::kDraining) fail_run(request.reason);
  return OkReply{};
}

}  // namespace levada::fanout
