#include "fanout/admission.h"

#include <algorithm>

#include "fanout/entry_edges.h"

namespace levada::fanout {

namespace {

struct Room {
  std::int64_t refs = 0;
  std::int64_t bytes = 0;
  bool fits() const { return refs >= 0 && bytes >= 0; }
};

Room room_left(const RunState& state) {
  return {state.config().max_live_refs - state.live_refs, state.config().max_live_bytes - state.live_bytes};
}

void take(const RunState& state, Room& room, std::int64_t p) {
  room.refs -= 1;
  room.bytes -= state.config().bytes_of(p);
}

bool is_claimable(const RunState& state, std::int64_t p, std::int64_t now_us) {
  const Entry& e = state.entry(p);
  return e.row.state == EntryState::kQueued && e.not_before_us <= now_us;
}

std::optional<Pick> next_retry(const RunState& state, std::int64_t now_us) {
  for (const std::int64_t p : state.present()) {
    const Entry& e = state.entry(p);
    if (e.row.state == EntryState::kCapturing && e.retry_due && e.not_before_us <= now_us) return Pick{p, 0, -1};
  }
  return std::nullopt;
}

std::vector<const Consumer*> by_cursor(const RunState& state) {
  std::vector<const Consumer*> order;
  for (const Consumer& c : state.consumers) {
    if (state.has_needs(c)) order.push_back(&c);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Consumer* a, const Consumer* b) { return a->row.cursor < b->row.cursor; });
  return order;
}

// The first needed position, smallest cursor first. One that does not fit stops the search (`blocked`): what comes free
// is for it. Those still in their backoff keep their room.
std::optional<Pick> next_needed(const RunState& state, std::int64_t now_us, bool& blocked) {
  Room room = room_left(state);
  const std::int64_t pace = state.pace_limit();
  std::vector<std::int64_t> passed;
  for (const Consumer* c : by_cursor(state)) {
    const PositionRange need = state.next_quantum(*c);
    for (std::int64_t p = need.begin; p < std::min(need.end, pace); ++p) {
      if (state.entry(p).row.state != EntryState::kQueued) continue;
      if (std::find(passed.begin(), passed.end(), p) != passed.end()) continue;
      take(state, room, p);
      if (!room.fits()) {
        blocked = true;
        return std::nullopt;
      }
      if (is_claimable(state, p, now_us)) return Pick{p, 0, -1};
      passed.push_back(p);
    }
  }
  return std::nullopt;
}

// The first claimable position of each consumer's range in turn, if it leaves room for every next quantum.
template <class RangeOf>
std::optional<Pick> next_in_turn(const RunState& state, std::int64_t now_us, std::int64_t priority, RangeOf range_of) {
  Room room = room_left(state);
  for (const std::int64_t p : state.missing_needs()) take(state, room, p);
  if (!room.fits()) return std::nullopt;
  const std::int64_t pace = state.pace_limit();
  const auto n = static_cast<std::int64_t>(state.consumers.size());
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t turn = (state.count(Count::kSchedulerCursor) + i) % n;
    const Consumer& c = state.consumers[static_cast<std::size_t>(turn)];
    if (!state.has_needs(c)) continue;
    const PositionRange range = range_of(c);
    for (std::int64_t p = range.begin; p < std::min(range.end, pace); ++p) {
      if (!is_claimable(state, p, now_us)) continue;
      Room after = room;
      take(state, after, p);
      if (after.fits()) return Pick{p, priority, turn};
    }
  }
  return std::nullopt;
}

void settle(RunState& state, std::int64_t p, std::int64_t now_us) {
  const Entry& e = state.entry(p);
  switch (e.row.state) {
    case EntryState::kQueued:
      if (!state.is_wanted(p)) dequeue(state, p);
      break;
    case EntryState::kReady:
      if (state.is_leased(p, now_us)) break;
      if (e.row.condemned && e.row.lost_reports > state.config().max_capture_retries + 1) {
        const std::string error = "its bytes were reported lost " + std::to_string(e.row.lost_reports) + " times";
        burn(state, p, false, now_us);
        give_up(state, p, error);
      } else if (e.row.condemned || !state.is_retained(p)) {
        evict(state, p, now_us);
      }
      break;
    case EntryState::kCapturing:
      if (!state.is_active() && e.retry_due) burn(state, p, true, now_us);
      break;
    case EntryState::kFailed:
      if (!state.is_active()) forgive(state, p);
      break;
    default: break;
  }
}

void enqueue_if_absent(RunState& state, std::int64_t p) {
  if (state.entry(p).row.state == EntryState::kAbsent) enqueue(state, p);
}

void enqueue_wants(RunState& state, const Consumer& c, std::int64_t pace) {
  if (!state.has_needs(c)) return;
  const PositionRange need = state.next_quantum(c);
  for (std::int64_t p = need.begin; p < std::min(need.end, pace); ++p) enqueue_if_absent(state, p);
  for (std::int64_t p = c.wait.begin; p < std::min(c.wait.end, pace); ++p) enqueue_if_absent(state, p);
  if (c.row.state == ConsumerState::kDetached) return;  // nobody is there to read ahead
  const std::int64_t end = std::min(state.window(c).end, pace);
  std::int64_t under_way = 0;
  for (std::int64_t p = c.row.cursor; p < end; ++p) {
    const EntryState s = state.entry(p).row.state;
    under_way += s == EntryState::kQueued || s == EntryState::kCapturing || s == EntryState::kCommitting;
  }
  for (std::int64_t p = c.row.cursor; p < end && under_way < c.spec.prefetch_depth; ++p) {
    const Entry& e = state.entry(p);
    if (e.row.state != EntryState::kAbsent || e.row.prefetch_suppressed) continue;
    enqueue(state, p);
    under_way += 1;
  }
}

// First what lies behind every consumer that keeps it, then the farthest ahead: what the slowest reads next stays.
std::vector<std::int64_t> shedding_order(const RunState& state, std::int64_t now_us) {
  std::vector<std::int64_t> behind;
  std::vector<std::int64_t> ahead;
  for (const std::int64_t p : state.present()) {
    if (state.entry(p).row.state != EntryState::kReady) continue;
    if (state.is_needed(p) || state.is_leased(p, now_us)) continue;
    const bool is_ahead = std::any_of(state.consumers.begin(), state.consumers.end(), [&](const Consumer& c) {
      return state.retains(c) && p >= c.row.cursor && state.window(c).contains(p);
    });
    (is_ahead ? ahead : behind).push_back(p);
  }
  behind.insert(behind.end(), ahead.rbegin(), ahead.rend());
  return behind;
}

void shed_for_needs(RunState& state, std::int64_t now_us) {
  const std::vector<std::int64_t> missing = state.missing_needs();
  if (missing.empty()) return;
  Room room = room_left(state);
  for (const std::int64_t p : missing) take(state, room, p);
  if (room.fits()) return;
  for (const std::int64_t p : state.present()) {  // what is on its way out already
    const Entry& e = state.entry(p);
    if (e.row.state != EntryState::kEvicting) continue;
    room.refs += 1;
    room.bytes += e.row.reserved_bytes;
  }
  for (const auto& [key, garbage] : state.garbage) {
    if (garbage.row.late) continue;
    room.refs += 1;
    room.bytes += garbage.row.bytes;
  }
  if (room.fits()) return;
  for (const std::int64_t p : shedding_order(state, now_us)) {
    room.refs += 1;
    room.bytes += state.entry(p).row.reserved_bytes;
    state.entry(p).row.prefetch_suppressed = true;
    evict(state, p, now_us);
    state.count(Count::kShed) += 1;
    if (room.fits()) return;
  }
}

// One more than may be passed over has failed: which, and why.
std::string too_many_failed(const RunState& state) {
  std::string reason = std::to_string(state.count(Count::kSkippedSamples)) +
                       " samples cannot be captured, skip_failed is " + std::to_string(state.config().skip_failed);
  for (const std::int64_t p : state.present()) {
    const EntryRow& row = state.entry(p).row;
    if (row.state != EntryState::kFailed) continue;
    reason += "; " + state.config().sources[static_cast<std::size_t>(p)].sample_id + ": " + row.last_error;
  }
  return reason;
}

bool is_empty(const RunState& state) { return state.present().empty() && state.garbage.empty(); }

void update_status(RunState& state) {
  const auto all = [&](auto predicate) {
    return std::all_of(state.consumers.begin(), state.consumers.end(), predicate);
  };
  const auto failed = [](const Consumer& c) { return c.row.state == ConsumerState::kFailed; };
  const std::int64_t may_fail = state.config().skip_failed;
  if (state.is_active() && may_fail > 0 && state.count(Count::kSkippedSamples) > may_fail) {
    state.run.status = RunStatus::kFailed;
    state.run.fail_reason = too_many_failed(state);
    state.mark_run();
    state.touch_all();
  }
  if (state.is_active() && all([](const Consumer& c) { return c.is_terminal(); })) {
    state.run.status = all(failed) ? RunStatus::kFailed : RunStatus::kDraining;
    if (all(failed)) {
      state.run.fail_reason = "every consumer failed";
      for (const Consumer& c : state.consumers) {
        state.run.fail_reason += "; " + c.row.consumer_id + ": " + c.row.failure;
      }
    }
    state.mark_run();
    state.touch_all();
  }
  if (state.run.status == RunStatus::kDraining && is_empty(state) &&
      all([](const Consumer& c) { return c.is_terminal(); })) {
    const bool any_failed = std::any_of(state.consumers.begin(), state.consumers.end(), failed);
    state.run.status = any_failed ? RunStatus::kCompletedWithFailures : RunStatus::kCompleted;
    state.mark_run();
  }
}

}  // namespace

std::optional<Pick> next_capture(const RunState& state, std::int64_t now_us) {
  if (!state.is_active()) return std::nullopt;
  if (auto pick = next_retry(state, now_us)) return pick;
  bool blocked = false;
  if (auto pick = next_needed(state, now_us, blocked)) return pick;
  if (blocked) return std::nullopt;
  if (auto pick = next_in_turn(state, now_us, 0, [](const Consumer& c) { return c.wait; })) return pick;
  return next_in_turn(state, now_us, 1, [&](const Consumer& c) {
    return PositionRange{c.row.cursor, state.window(c).end};
  });
}

Shortage shortage(const RunState& state, std::int64_t now_us) {
  const std::vector<std::int64_t> missing = state.missing_needs();
  Room room = room_left(state);
  for (const std::int64_t p : missing) take(state, room, p);
  Shortage found = Shortage::kNone;
  for (const std::int64_t p : state.present()) {
    if (!is_claimable(state, p, now_us)) continue;
    Room after = room;
    if (!std::binary_search(missing.begin(), missing.end(), p)) take(state, after, p);
    if (after.refs < 0) return Shortage::kRefs;
    if (after.bytes < 0) found = Shortage::kBytes;
  }
  return found;
}

void upkeep(RunState& state, std::int64_t now_us) {
  if (!state.take_changed()) return;
  update_status(state);
  for (const std::int64_t p : state.take_touched()) settle(state, p, now_us);
  if (state.is_active()) {
    const std::int64_t pace = state.pace_limit();
    for (const Consumer& c : state.consumers) enqueue_wants(state, c, pace);
    shed_for_needs(state, now_us);
  }
  update_status(state);
  state.take_changed();  // what this pass changed needs no second one
}

}  // namespace levada::fanout
