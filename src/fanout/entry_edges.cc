#include "fanout/entry_edges.h"

#include <algorithm>

namespace levada::fanout {

namespace {

Entry& in_state(RunState& state, std::int64_t p, EntryState wanted) {
  Entry& e = state.entry(p);
  LEVADA_CHECK(e.row.state == wanted, "an edge was taken from a state it does not start from");
  return e;
}

void forget_bytes(Entry& e) {
  e.row.ref.reset();
  e.row.reserved_bytes = 0;
  e.row.condemned = false;
  e.row.servers.clear();
  e.row.worker.clear();
  e.retry_due = false;
  e.good_reader = -1;
  e.removal_tries = 0;
  e.not_before_us = 0;
  e.quiet_after_us = 0;
  e.deadline_us = 0;
}

}  // namespace

void enqueue(RunState& state, std::int64_t p) {
  Entry& e = in_state(state, p, EntryState::kAbsent);
  e.row.generation += 1;
  e.row.attempt = 0;
  e.row.nonce.clear();
  state.set_state(p, EntryState::kQueued);
}

void dequeue(RunState& state, std::int64_t p) {
  in_state(state, p, EntryState::kQueued);
  state.set_state(p, EntryState::kAbsent);
}

void claim(RunState& state, std::int64_t p, const std::string& worker, const std::string& server, std::int64_t claim_id,
           std::int64_t now_us) {
  Entry& e = state.entry(p);
  if (e.row.state == EntryState::kQueued) {
    e.row.reserved_bytes = state.config().bytes_of(p);
    state.count_live(1, e.row.reserved_bytes);
    e.since_us = now_us;
    state.set_state(p, EntryState::kCapturing);
  } else {
    LEVADA_CHECK(e.row.state == EntryState::kCapturing && e.retry_due, "only what is queued or due can be claimed");
    e.row.attempt += 1;
    e.retry_due = false;
    state.mark_entry(p);
  }
  e.row.worker = worker;
  e.row.claim_id = claim_id;
  e.row.nonce = std::to_string(p) + "." + std::to_string(e.row.generation) + "." + std::to_string(e.row.attempt);
  e.row.prefetch_suppressed = false;
  if (std::find(e.row.servers.begin(), e.row.servers.end(), server) == e.row.servers.end()) {
    e.row.servers.push_back(server);
  }
  e.not_before_us = 0;
  // The worker gives up after capture_timeout and says so; one lease more, and the worker itself is dead.
  e.deadline_us = now_us + state.config().times.capture_timeout_us + state.config().times.lease_ttl_us;
}

void keep_for_retry(RunState& state, std::int64_t p, std::int64_t now_us) {
  Entry& e = in_state(state, p, EntryState::kCapturing);
  e.retry_due = true;
  e.not_before_us = now_us + state.config().times.retry_backoff_us;
  e.quiet_after_us = now_us + state.config().times.capture_timeout_us;
  e.deadline_us = 0;
  state.mark_entry(p);
}

void await_late_write(RunState& state, std::int64_t p, std::int64_t now_us) {
  Entry& e = state.entry(p);
  e.quiet_after_us = std::max(e.quiet_after_us, now_us + state.config().times.capture_timeout_us);
  if (e.row.state == EntryState::kEvicting) e.not_before_us = std::max(e.not_before_us, e.quiet_after_us);
}

void mark_committing(RunState& state, std::int64_t p, RefPtr ref, std::int64_t bytes) {
  Entry& e = in_state(state, p, EntryState::kCapturing);
  LEVADA_CHECK(bytes <= e.row.reserved_bytes, "more bytes than were reserved");
  state.count_live(0, bytes - e.row.reserved_bytes);
  e.row.reserved_bytes = bytes;
  e.row.ref = std::move(ref);
  state.set_state(p, EntryState::kCommitting);
  // The one server that ever heard of this generation has answered for it: no attempt sent before writes any more.
  if (state.config().servers_keep_journal && e.row.servers.size() == 1) e.quiet_after_us = 0;
}

void complete(RunState& state, std::int64_t p, std::int64_t now_us) {
  Entry& e = in_state(state, p, EntryState::kCommitting);
  state.capture_time.note(now_us - e.since_us);
  e.row.materializations += 1;
  e.row.retry_count = 0;
  e.row.last_error.clear();
  e.deadline_us = 0;
  state.count(Count::kCaptures) += 1;
  if (e.row.materializations > 1) state.count(Count::kRecaptures) += 1;
  state.set_state(p, EntryState::kReady);
}

void evict(RunState& state, std::int64_t p, std::int64_t now_us) {
  Entry& e = in_state(state, p, EntryState::kReady);
  e.since_us = now_us;
  e.deadline_us = 0;
  e.not_before_us = e.quiet_after_us;
  state.set_state(p, EntryState::kEvicting);
}

void finish_removal(RunState& state, std::int64_t p, std::int64_t now_us) {
  Entry& e = in_state(state, p, EntryState::kEvicting);
  state.reclaim_time.note(now_us - e.since_us);
  state.count_live(-1, -e.row.reserved_bytes);
  forget_bytes(e);
  state.set_state(p, EntryState::kAbsent);
}

void burn(RunState& state, std::int64_t p, bool quarantined, std::int64_t now_us) {
  Entry& e = state.entry(p);
  LEVADA_CHECK(e.row.state == EntryState::kCapturing || e.row.state == EntryState::kCommitting ||
                   e.row.state == EntryState::kReady,
               "only a generation that may have been written is burnt");
  Garbage garbage;
  garbage.row.source_index = p;
  garbage.row.generation = e.row.generation;
  garbage.row.bytes = e.row.reserved_bytes;
  garbage.row.servers = e.row.servers;
  garbage.since_us = now_us;
  if (e.row.ref) garbage.row.store_url = e.row.ref->store_url;
  garbage.not_before_us =
      std::max(e.quiet_after_us, quarantined ? now_us + state.config().times.capture_timeout_us : now_us);
  garbage.row.quarantined = garbage.not_before_us > now_us;
  const GarbageKey key{p, e.row.generation};
  state.garbage[key] = std::move(garbage);  // its slot and bytes stay counted
  state.mark(key);
  forget_bytes(e);
  state.set_state(p, EntryState::kAbsent);
}

void give_up(RunState& state, std::int64_t p, const std::string& error) {
  Entry& e = in_state(state, p, EntryState::kAbsent);
  e.row.last_error = error;
  if (state.config().skip_failed > 0) state.count(Count::kSkippedSamples) += 1;
  state.set_state(p, EntryState::kFailed);
}

void forgive(RunState& state, std::int64_t p) {
  Entry& e = in_state(state, p, EntryState::kFailed);
  e.row.retry_count = 0;
  e.row.lost_reports = 0;
  state.set_state(p, EntryState::kAbsent);
}

}  // namespace levada::fanout
