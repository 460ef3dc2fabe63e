// What a snapshot says of a run: the names are the spec's (§5.12).
#include "fanout/machine.h"

namespace levada::fanout {

namespace {

using Counters = std::map<std::string, std::int64_t>;

void add_consumers(const RunState& state, std::int64_t now_us, SnapshotReply& reply) {
  std::int64_t leader = 0;
  for (const Consumer& c : state.consumers) leader = std::max(leader, c.row.cursor);
  Counters& counters = reply.counters;
  for (const char* name : {"waiters", "leases", "leases_live", "leases_ghost", "interests"}) counters[name] = 0;
  for (const Consumer& c : state.consumers) {
    const bool is_waiting = c.wait.begin != c.wait.end;
    const std::int64_t blocked = c.blocked_us + (is_waiting ? now_us - c.wait_since_us : 0);
    const auto leases = static_cast<std::int64_t>(c.leases.size());
    reply.consumers.push_back({c.row.consumer_id, c.row.state, c.row.cursor, c.row.step, leases, leader - c.row.cursor,
                               blocked / 1000, c.row.failure});
    counters["waiters"] += is_waiting;
    counters["leases"] += leases;
    for (const auto& [p, lease] : c.leases) counters[state.is_current(c, lease) ? "leases_live" : "leases_ghost"] += 1;
    const PositionRange window = state.window(c);
    if (state.retains(c)) counters["interests"] += window.end - window.begin;
  }
}

void add_entries(const RunState& state, SnapshotReply& reply) {
  for (const std::string_view name : EnumNames<EntryState>::kNames) reply.entries[std::string(name)] = 0;
  Counters& counters = reply.counters;
  counters["queued_demand"] = counters["queued_prefetch"] = 0;
  for (std::int64_t p = 0; p < state.total(); ++p) {
    const EntryState s = state.entry(p).row.state;
    reply.entries[std::string(to_string(s))] += 1;
    if (s != EntryState::kQueued) continue;
    const bool is_waited_for = std::any_of(state.consumers.begin(), state.consumers.end(),
                                           [&](const Consumer& c) { return c.wait.contains(p); });
    counters[is_waited_for || state.is_needed(p) ? "queued_demand" : "queued_prefetch"] += 1;
  }
}

void add_timing(const std::string& name, const Timing& timing, Counters& counters) {
  counters[name + "_count"] = timing.count;
  counters[name + "_ms_sum"] = timing.total_us / 1000;
  counters[name + "_ms_max"] = timing.max_us / 1000;
}

void add_counters(const RunState& state, std::int64_t now_us, Counters& counters) {
  counters["live_refs"] = state.live_refs;
  counters["live_bytes"] = state.live_bytes;
  const auto garbage = static_cast<std::int64_t>(state.garbage.size());
  counters["garbage"] = garbage;
  counters["garbage_quarantined"] = std::count_if(state.garbage.begin(), state.garbage.end(), [&](const auto& one) {
    return one.second.row.quarantined && one.second.not_before_us > now_us;
  });
  counters["drain_remaining"] = state.is_active() ? 0 : static_cast<std::int64_t>(state.present().size()) + garbage;
  counters["registry_epoch"] = state.run.registry_epoch;
  for (std::size_t i = 0; i < kCounts; ++i) {
    const auto which = static_cast<Count>(i);
    counters[std::string(to_string(which))] = state.count(which);
  }
  add_timing("capture_latency", state.capture_time, counters);
  add_timing("reclaim_latency", state.reclaim_time, counters);
  add_timing("demand_wait", state.demand_wait, counters);
  counters["admission_blocked_refs_ms"] = state.short_of_us(Shortage::kRefs, now_us) / 1000;
  counters["admission_blocked_bytes_ms"] = state.short_of_us(Shortage::kBytes, now_us) / 1000;
  counters["leases_granted"] = state.leases_granted;
  counters["ready_at_request_refs"] = state.ready_at_request;
}

void add_stuck(const RunState& state, SnapshotReply& reply) {
  const std::int64_t tries = state.config().removal_tries;
  const auto stuck = [&](std::int64_t p, std::int64_t generation, const std::string& error) {
    reply.stuck.push_back(std::to_string(p) + "/g" + std::to_string(generation) + ": " + error);
  };
  for (const std::int64_t p : state.present()) {
    const Entry& e = state.entry(p);
    if (e.removal_tries >= tries) stuck(p, e.row.generation, e.row.last_error);
  }
  for (const auto& [key, garbage] : state.garbage) {
    if (garbage.row.tries >= tries) stuck(key.source_index, key.generation, garbage.row.last_error);
  }
}

}  // namespace

SnapshotReply Machine::snapshot(std::int64_t now_us) const {
  SnapshotReply reply;
  reply.status = state_.run.status;
  reply.fail_reason = state_.run.fail_reason;
  reply.drained = is_drained();
  reply.total_samples = state_.total();
  add_consumers(state_, now_us, reply);
  add_entries(state_, reply);
  add_counters(state_, now_us, reply.counters);
  add_stuck(state_, reply);
  return reply;
}

}  // namespace levada::fanout
