#include "fanout/machine.h"

#include <algorithm>
#include <limits>

#include "fanout/admission.h"
#include "fanout/entry_edges.h"

namespace levada::fanout {

Outcome<Reply> Machine::apply(const Request& request, std::int64_t now_us) {
  Outcome<Reply> outcome = std::visit(
      [&](const auto& typed) -> Outcome<Reply> {
        auto reply = on(typed, now_us);
        if (!reply.ok()) return reply.error();
        return Reply(std::move(*reply));
      },
      request);
  upkeep(state_, now_us);
  return outcome;
}

bool Machine::waits(const Request& request, const Reply& reply) {
  if (const auto* acquire = std::get_if<AcquireRequest>(&request)) {
    const auto& answer = std::get<AcquireReply>(reply);
    return acquire->wait_ms > 0 && answer.leases.empty() && answer.skipped.empty() && answer.lost.empty() &&
           answer.head != Head::kEof;
  }
  if (const auto* claim = std::get_if<ClaimRequest>(&request)) {
    const auto& answer = std::get<ClaimReply>(reply);
    return claim->wait_ms > 0 && answer.requests.empty() && !answer.drain;
  }
  if (const auto* removals = std::get_if<RemovalsRequest>(&request)) {
    const auto& answer = std::get<RemovalsReply>(reply);
    return removals->wait_ms > 0 && answer.removals.empty() && !answer.drained;
  }
  return false;
}

void Machine::end_wait(const Request& request) {
  const auto* acquire = std::get_if<AcquireRequest>(&request);
  if (acquire == nullptr) return;
  for (Consumer& c : state_.consumers) {
    if (c.row.session_id != acquire->key.session_id || c.wait.begin != acquire->from) continue;
    state_.touch(c.wait);
    c.wait = {};
  }
}

void Machine::on_time(std::int64_t now_us) {
  const Times& times = state_.config().times;
  for (Consumer& c : state_.consumers) {
    std::vector<std::int64_t> expired;
    for (const auto& [p, lease] : c.leases) {
      if (lease.expires_us <= now_us) expired.push_back(p);
    }
    for (const std::int64_t p : expired) {
      take_back(c, p);
      state_.touch(p);
      state_.count(Count::kExpiredLeases) += 1;
    }
    const ConsumerState s = c.row.state;
    const bool has_session =
        s == ConsumerState::kInitializing || s == ConsumerState::kReady || s == ConsumerState::kEof;
    if (has_session && c.session_expires_us <= now_us) {
      c.wait = {};
      c.patience_ends_us = now_us + times.detach_grace_us;
      set_consumer_state(c, ConsumerState::kDetached);
    } else if ((s == ConsumerState::kDetached || s == ConsumerState::kExpected) && c.patience_ends_us <= now_us) {
      set_consumer_state(c, ConsumerState::kSuspended);
    }
  }
  const std::vector<std::int64_t> present(state_.present().begin(), state_.present().end());
  for (const std::int64_t p : present) {
    const Entry& e = state_.entry(p);
    const bool under_way =
        (e.row.state == EntryState::kCapturing && !e.retry_due) || e.row.state == EntryState::kCommitting;
    if (!under_way || e.deadline_us > now_us) continue;
    burn(state_, p, true, now_us);
    retry_or_give_up(p, "worker did not answer in time", now_us);
    state_.touch(p);
  }
  upkeep(state_, now_us);
}

std::int64_t Machine::next_deadline_us(std::int64_t now_us) const {
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  const auto at = [&](std::int64_t time_us) {
    if (time_us > now_us) next = std::min(next, time_us);
  };
  for (const Consumer& c : state_.consumers) {
    for (const auto& [p, lease] : c.leases) at(lease.expires_us);
    if (c.is_terminal()) continue;
    at(c.session_expires_us);
    at(c.patience_ends_us);
  }
  for (const std::int64_t p : state_.present()) {
    at(state_.entry(p).not_before_us);
    at(state_.entry(p).deadline_us);
  }
  for (const auto& [key, garbage] : state_.garbage) {
    at(garbage.not_before_us);
    at(garbage.handed_until_us);
  }
  return next;
}

}  // namespace levada::fanout
