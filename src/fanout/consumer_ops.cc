#include <algorithm>

#include "fanout/machine.h"
#include "fanout/once.h"

namespace levada::fanout {

namespace {

constexpr std::int64_t kMaxUnfoundedReports = 3;

Head head_of(EntryState state) {
  switch (state) {
    case EntryState::kQueued: return Head::kQueued;
    case EntryState::kCapturing: return Head::kCapturing;
    case EntryState::kCommitting: return Head::kCommitting;
    case EntryState::kReady: return Head::kReady;
    default: return Head::kAbsent;
  }
}

// Positions from here on belong to no whole quantum: this consumer never trains on them.
std::int64_t usable_end(const Consumer& c, std::int64_t total) { return total - total % c.spec.quantum; }

std::string text(std::int64_t number) { return std::to_string(number); }

}  // namespace

Outcome<AcquireReply> Machine::on(const AcquireRequest& request, std::int64_t now_us) {
  auto session = session_of(request.key.session_id, request.key.session_epoch, now_us);
  if (!session.ok()) return session.error();
  Consumer& c = **session;
  if (request.max_n < 1) return Error{ErrorCode::kBadRequest, "max_n must be at least 1, got " + text(request.max_n)};
  const std::int64_t from = request.from;
  if (from < c.row.cursor || from > c.row.cursor + c.spec.lookahead) {
    return Error{ErrorCode::kOutOfWindow, "from must be in [" + text(c.row.cursor) + ", " +
                                              text(c.row.cursor + c.spec.lookahead) + "], got " + text(from)};
  }
  AcquireReply reply;
  const std::int64_t usable = usable_end(c, state_.total());
  if (from >= usable) {
    c.wait = {};
    reply.head = Head::kEof;
    return reply;
  }
  if (!state_.is_active()) return Error{ErrorCode::kDraining, "the run is ending"};
  const Entry& first = state_.entry(from);
  const bool skips = state_.config().skip_failed > 0;
  if (first.row.state == EntryState::kFailed && !skips) {
    return Error{ErrorCode::kCaptureFailed, "position " + text(from) + " cannot be captured: " + first.row.last_error};
  }
  const std::int64_t last = std::min(usable, c.row.cursor + c.spec.lookahead + 1);
  const std::int64_t end = from + std::min(request.max_n, last - from);
  for (const auto& [token, p] : c.lost) {
    if (p >= from && p < end) reply.lost.push_back(token);
  }
  for (std::int64_t p = from; p < end; ++p) {
    if (skips && state_.entry(p).row.state == EntryState::kFailed) {
      reply.skipped.push_back(p);
      continue;
    }
    auto lease = grant(c, p, now_us);
    if (!lease) break;
    reply.leases.push_back(std::move(*lease));
  }
  if (reply.leases.empty() && reply.skipped.empty()) {
    if (c.wait.begin == c.wait.end) c.wait_since_us = now_us;
    if (c.wait.begin != from || c.wait.end != end) state_.note_change();
    c.wait = {from, end};
  } else if (c.wait.begin != c.wait.end) {
    c.blocked_us += now_us - c.wait_since_us;
    state_.demand_wait.note(now_us - c.wait_since_us);
    c.wait = {};
  }
  reply.head = head_of(first.row.state);
  return reply;
}

std::optional<GrantedLease> Machine::grant(Consumer& c, std::int64_t p, std::int64_t now_us) {
  const Entry& e = state_.entry(p);
  if (e.row.state != EntryState::kReady || e.row.condemned) return std::nullopt;
  const std::int64_t expires = now_us + state_.config().times.lease_ttl_us;
  const auto held = c.leases.find(p);
  const bool is_held = held != c.leases.end() && state_.is_current(c, held->second) &&
                       held->second.expires_us > now_us && held->second.generation == e.row.generation;
  if (is_held) {
    held->second.expires_us = expires;
  } else {
    const PositionRange next = state_.next_quantum(c);
    if (!next.contains(p)) {
      const auto ahead = std::count_if(c.leases.begin(), c.leases.end(), [&](const auto& lease) {
        return state_.is_current(c, lease.second) && lease.second.expires_us > now_us && !next.contains(lease.first);
      });
      // Room for the next quantum's own leases stays, whatever was taken ahead of it.
      if (ahead >= c.spec.max_outstanding - c.spec.quantum) return std::nullopt;
      if (!state_.may_pin_ahead(c, p, now_us)) return std::nullopt;
    }
    state_.erase_lease(c, p);
    Lease lease;
    lease.token = text(state_.run.registry_epoch) + "-" + text(++state_.leases_granted);
    lease.generation = e.row.generation;
    lease.session_epoch = c.row.session_epoch;
    lease.registry_epoch = state_.run.registry_epoch;
    lease.expires_us = expires;
    lease.ready_at_request = !c.wait.contains(p);
    state_.ready_at_request += lease.ready_at_request;
    c.leases[p] = lease;
    state_.mark_lease(c, p);
    std::erase_if(c.lost, [&](const auto& lost) { return lost.second == p; });
  }
  const Lease& lease = c.leases.at(p);
  return GrantedLease{lease.token,
                      p,
                      state_.config().sources[static_cast<std::size_t>(p)].sample_id,
                      lease.generation,
                      e.row.ref,
                      lease.ready_at_request,
                      state_.config().times.lease_ttl_us / 1000};
}

Outcome<AbandonReply> Machine::on(const AbandonRequest& request, std::int64_t now_us) {
  return once(request, now_us, [&](Consumer& c) -> Outcome<AbandonReply> {
    AbandonReply reply;
    for (const std::string& token : request.tokens) {
      const auto held = std::find_if(c.leases.begin(), c.leases.end(),
                                     [&](const auto& lease) { return lease.second.token == token; });
      if (held == c.leases.end()) continue;
      const std::int64_t p = held->first;
      if (request.reason == "verified") {
        state_.entry(p).good_reader = static_cast<std::int64_t>(state_.index_of(c));
        state_.entry(p).row.lost_reports = 0;
        state_.mark_entry(p);
      }
      state_.erase_lease(c, p);
      state_.touch(p);
      reply.released += 1;
    }
    return reply;
  });
}

Outcome<EntryReply> Machine::on(const ReportLostRequest& request, std::int64_t now_us) {
  const std::int64_t p = request.source_index;
  return once(request, now_us, [&](Consumer& c) -> Outcome<EntryReply> {
    if (!is_position(p)) return Error{ErrorCode::kBadRequest, "source_index is not in the plan: " + text(p)};
    if (!state_.window(c).contains(p)) {
      return Error{ErrorCode::kOutOfWindow, "source_index " + text(p) + " is outside the window"};
    }
    Entry& e = state_.entry(p);
    if (e.row.state != EntryState::kReady || e.row.generation != request.generation) {
      return EntryReply{e.row.state};  // known already, or captured anew since
    }
    state_.erase_lease(c, p);
    state_.touch(p);
    state_.count(Count::kLostReports) += 1;
    const auto self = static_cast<std::int64_t>(state_.index_of(c));
    if (e.good_reader >= 0 && e.good_reader != self) {
      c.row.unfounded_reports += 1;
      state_.mark(c);
    } else if (!e.row.condemned) {
      e.row.lost_reports += 1;
    }
    e.row.condemned = true;
    state_.mark_entry(p);
    if (c.row.unfounded_reports >= kMaxUnfoundedReports) {
      fail_consumer(c, "it reported " + text(c.row.unfounded_reports) +
                           " samples lost that others read well, the last " + text(p) + " (" +
                           std::string(to_string(request.reason)) + ")");
    }
    return EntryReply{e.row.state};
  });
}

Outcome<CursorReply> Machine::on(const AdvanceRequest& request, std::int64_t now_us) {
  return once(request, now_us, [&](Consumer& c) -> Outcome<CursorReply> {
    if (!request.optimizer_durable) {
      return Error{ErrorCode::kBadRequest, "optimizer_durable: only finished optimizer steps are acknowledged"};
    }
    const std::int64_t moved = request.new_cursor > c.row.cursor ? request.new_cursor - c.row.cursor : 0;
    const std::int64_t quanta = moved / c.spec.quantum;
    if (request.old_cursor != c.row.cursor || quanta < 1 || moved % c.spec.quantum != 0 ||
        request.step != c.row.step + quanta) {
      return Error{ErrorCode::kCursorConflict, "the registry has cursor " + text(c.row.cursor) + ", step " +
                                                   text(c.row.step) + ", quantum " + text(c.spec.quantum) +
                                                   "; asked was " + text(request.old_cursor) + " to " +
                                                   text(request.new_cursor) + ", step " + text(request.step)};
    }
    if (request.new_cursor > state_.window(c).end) {
      return Error{ErrorCode::kOutOfWindow, "new_cursor " + text(request.new_cursor) + " is beyond the window's end " +
                                                text(state_.window(c).end)};
    }
    move_cursor(c, request.new_cursor, request.step);
    return CursorReply{c.row.cursor};
  });
}

void Machine::move_cursor(Consumer& c, std::int64_t cursor, std::int64_t step) {
  const PositionRange before = state_.window(c);
  c.row.cursor = cursor;
  c.row.step = step;
  const PositionRange after = state_.window(c);
  while (!c.leases.empty() && c.leases.begin()->first < cursor) {
    const std::int64_t p = c.leases.begin()->first;
    if (c.leases.begin()->second.generation == state_.entry(p).row.generation) {
      state_.entry(p).good_reader = static_cast<std::int64_t>(state_.index_of(c));
      if (state_.entry(p).row.lost_reports != 0) {
        state_.entry(p).row.lost_reports = 0;
        state_.mark_entry(p);
      }
    }
    state_.erase_lease(c, p);
  }
  std::erase_if(c.lost, [&](const auto& lost) { return lost.second < cursor; });
  c.wait = {};
  for (std::int64_t p = after.begin; p < after.end; ++p) {
    if (before.contains(p) || !state_.entry(p).row.prefetch_suppressed) continue;
    state_.entry(p).row.prefetch_suppressed = false;
    state_.mark_entry(p);
  }
  state_.touch({std::min(before.begin, after.begin), std::max(before.end, after.end)});
  const PositionRange need = state_.next_quantum(c);
  if (need.begin == need.end) {
    set_consumer_state(c, ConsumerState::kEof);
  } else if (c.row.state == ConsumerState::kEof) {
    set_consumer_state(c, ConsumerState::kInitializing);
  }
  state_.mark(c);
}

void Machine::take_back(Consumer& c, std::int64_t p) {
  const auto held = c.leases.find(p);
  if (held == c.leases.end()) return;
  if (state_.is_current(c, held->second)) c.lost[held->second.token] = p;
  state_.erase_lease(c, p);
}

Outcome<OkReply> Machine::on(const CheckpointRequest& request, std::int64_t now_us) {
  return once(request, now_us, [&](Consumer& c) -> Outcome<OkReply> {
    const std::int64_t end = std::min(state_.window(c).end, usable_end(c, state_.total()));
    if (request.step < 0 || request.cursor > std::max(end, c.row.cursor) || request.step > request.cursor ||
        request.cursor != request.step * c.spec.quantum) {
      return Error{ErrorCode::kCursorConflict, "cursor must be step * quantum = step * " + text(c.spec.quantum) +
                                                   " and at most " + text(end) + ", got step " + text(request.step) +
                                                   ", cursor " + text(request.cursor)};
    }
    const CheckpointRow row{c.row.consumer_id, request.step, request.cursor, request.uri};
    state_.checkpoints[{row.consumer_id, row.step}] = row;
    state_.mark_checkpoint(row);
    return OkReply{};
  });
}

}  // namespace levada::fanout
