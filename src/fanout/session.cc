#include <algorithm>
#include <span>

#include "base/hash.h"
#include "base/hex.h"
#include "fanout/machine.h"
#include "fanout/once.h"

namespace levada::fanout {

namespace {

// "{consumer_id}/{hash}": whose it is can be read off, and no two sessions of a run share one.
std::string session_id_for(const ConsumerRow& row, std::int64_t registry_epoch) {
  const std::string text = row.consumer_id + "\n" + row.client_nonce + "\n" + std::to_string(row.session_epoch) + "\n" +
                           std::to_string(registry_epoch);
  return row.consumer_id + "/" + hex64(hash64(std::as_bytes(std::span(text))));
}

Error differs(ErrorCode code, const std::string& field, const std::string& run, const std::string& consumer) {
  return {code, field + " differs: the run has " + run + ", the consumer " + consumer};
}

}  // namespace

std::optional<Error> Machine::refuse_registration(const RegisterRequest& request) const {
  if (request.run_id != state_.run.run_id) {
    return differs(ErrorCode::kPlanMismatch, "run_id", state_.run.run_id, request.run_id);
  }
  if (request.contract_digest != state_.run.contract_digest) {
    return differs(ErrorCode::kContractMismatch, "contract_digest", state_.run.contract_digest,
                   request.contract_digest);
  }
  if (request.source_digest != state_.run.source_digest) {
    return differs(ErrorCode::kPlanMismatch, "source_digest", state_.run.source_digest, request.source_digest);
  }
  const auto found = std::find_if(state_.consumers.begin(), state_.consumers.end(),
                                  [&](const Consumer& c) { return c.row.consumer_id == request.consumer_id; });
  if (found == state_.consumers.end()) {
    return Error{ErrorCode::kUnknownConsumer, "the run expects no consumer " + request.consumer_id};
  }
  const struct {
    const char* field;
    std::int64_t run, consumer;
  } numbers[] = {{"quantum", found->spec.quantum, request.quantum},
                 {"lookbehind", found->spec.lookbehind, request.lookbehind},
                 {"lookahead", found->spec.lookahead, request.lookahead},
                 {"prefetch_depth", found->spec.prefetch_depth, request.prefetch_depth},
                 {"max_outstanding", found->spec.max_outstanding, request.max_outstanding}};
  for (const auto& [field, run, consumer] : numbers) {
    if (run != consumer) {
      return differs(ErrorCode::kPlanMismatch, field, std::to_string(run), std::to_string(consumer));
    }
  }
  const std::string& recipe = found->row.recipe_hash;
  if (!recipe.empty() && recipe != request.recipe_hash) {
    return differs(ErrorCode::kPlanMismatch, "recipe_hash", recipe, request.recipe_hash);
  }
  if (request.client_nonce.empty()) return Error{ErrorCode::kBadRequest, "client_nonce must not be empty"};
  return std::nullopt;
}

Outcome<RegisterReply> Machine::on(const RegisterRequest& request, std::int64_t now_us) {
  if (auto refused = refuse_registration(request)) return *refused;
  if (state_.run.status == RunStatus::kFailed) return Error{ErrorCode::kRunFailed, state_.run.fail_reason};
  Consumer& c = *std::find_if(state_.consumers.begin(), state_.consumers.end(), [&](const Consumer& candidate) {
    return candidate.row.consumer_id == request.consumer_id;
  });
  if (c.is_terminal()) return has_ended(c);
  const bool same_client = c.row.client_nonce == request.client_nonce;
  const bool unexpired = !c.row.client_nonce.empty() && c.session_expires_us > now_us;
  if (unexpired && same_client && c.row.session_registry_epoch == state_.run.registry_epoch) {
    c.session_expires_us = now_us + state_.config().times.session_ttl_us;
    return registration_of(c);  // the reply of the first call was lost
  }
  if (unexpired && !same_client && !request.takeover) {
    return Error{ErrorCode::kDuplicateConsumer, "consumer " + c.row.consumer_id + " has a live session for another " +
                                                    std::to_string((c.session_expires_us - now_us) / 1000) +
                                                    " ms; set takeover to end it"};
  }
  return open_session(c, request, now_us);
}

Outcome<RegisterReply> Machine::open_session(Consumer& c, const RegisterRequest& request, std::int64_t now_us) {
  c.row.client_nonce = request.client_nonce;
  c.row.recipe_hash = request.recipe_hash;
  c.row.session_epoch += 1;
  c.row.session_registry_epoch = state_.run.registry_epoch;
  c.row.session_id = session_id_for(c.row, state_.run.registry_epoch);
  c.row.last_op = 0;
  c.row.last_op_hash = 0;
  c.row.last_op_reply.clear();
  c.session_expires_us = now_us + state_.config().times.session_ttl_us;
  c.lost.clear();
  c.wait = {};
  const PositionRange need = state_.next_quantum(c);
  set_consumer_state(c, need.begin == need.end ? ConsumerState::kEof : ConsumerState::kInitializing);
  // Whoever starts this consumer anew may have mended what made captures fail: a new budget. What others have passed over
  // stays passed over.
  for (std::int64_t p = need.begin; p < need.end && state_.config().skip_failed == 0; ++p) {
    if (state_.entry(p).row.state == EntryState::kFailed) forgive(state_, p);
  }
  return registration_of(c);
}

RegisterReply Machine::registration_of(const Consumer& c) const {
  const Times& times = state_.config().times;
  return {c.row.session_id,
          c.row.session_epoch,
          state_.run.registry_epoch,
          c.row.cursor,
          c.row.step,
          state_.total(),
          times.lease_ttl_us / 1000,
          times.heartbeat_us / 1000,
          times.session_ttl_us / 1000};
}

Outcome<Consumer*> Machine::session_of(const std::string& session_id, std::int64_t session_epoch, std::int64_t now_us,
                                       bool may_be_final) {
  const std::string consumer_id = session_id.substr(0, session_id.rfind('/'));
  const auto found = std::find_if(state_.consumers.begin(), state_.consumers.end(),
                                  [&](const Consumer& c) { return c.row.consumer_id == consumer_id; });
  if (found == state_.consumers.end()) return Error{ErrorCode::kUnknownConsumer, "no such session"};
  if (state_.run.status == RunStatus::kFailed) return Error{ErrorCode::kRunFailed, state_.run.fail_reason};
  Consumer& c = *found;
  if (c.row.session_id != session_id || c.row.session_epoch != session_epoch) {
    return Error{ErrorCode::kSessionFenced, "another session of " + consumer_id + " has begun"};
  }
  if (c.is_terminal()) {
    if (may_be_final) return &c;
    return has_ended(c);
  }
  if (c.row.session_registry_epoch != state_.run.registry_epoch) {
    return Error{ErrorCode::kEpochFenced, "the registry restarted: register again"};
  }
  if (c.session_expires_us <= now_us) {
    return Error{ErrorCode::kSessionFenced, "the session expired: register again"};
  }
  c.session_expires_us = now_us + state_.config().times.session_ttl_us;
  return &c;
}

Outcome<CursorReply> Machine::on(const ResumeRequest& request, std::int64_t now_us) {
  return once(request, now_us, [&](Consumer& c) -> Outcome<CursorReply> {
    const auto found = state_.checkpoints.find({c.row.consumer_id, request.step});
    if (found == state_.checkpoints.end() || found->second.cursor != request.durable_cursor) {
      return Error{ErrorCode::kCursorConflict, "no checkpoint is recorded at step " + std::to_string(request.step) +
                                                   ", cursor " + std::to_string(request.durable_cursor)};
    }
    if (request.durable_cursor > c.row.cursor) {
      return Error{ErrorCode::kCursorConflict,
                   "step " + std::to_string(request.step) + " is ahead of the cursor: acknowledge it instead"};
    }
    std::vector<std::int64_t> held;
    for (const auto& [p, lease] : c.leases) {
      if (state_.is_current(c, lease)) held.push_back(p);
    }
    for (const std::int64_t p : held) {
      state_.erase_lease(c, p);
      state_.touch(p);
    }
    move_cursor(c, request.durable_cursor, request.step);
    return CursorReply{c.row.cursor};
  });
}

Outcome<HeartbeatReply> Machine::on(const HeartbeatRequest& request, std::int64_t now_us) {
  auto session = session_of(request.key.session_id, request.key.session_epoch, now_us);
  if (!session.ok()) return session.error();
  Consumer& c = **session;
  if (request.ready && c.row.state == ConsumerState::kInitializing) set_consumer_state(c, ConsumerState::kReady);
  HeartbeatReply reply;
  for (const std::string& token : request.tokens) {
    const auto held =
        std::find_if(c.leases.begin(), c.leases.end(), [&](const auto& lease) { return lease.second.token == token; });
    if (held == c.leases.end() || !state_.is_current(c, held->second) || held->second.expires_us <= now_us) {
      reply.lost.push_back(token);
      continue;
    }
    held->second.expires_us = now_us + state_.config().times.lease_ttl_us;
    reply.renewed[token] = state_.config().times.lease_ttl_us / 1000;
  }
  return reply;
}

Outcome<CompleteReply> Machine::on(const CompleteConsumerRequest& request, std::int64_t now_us) {
  return once(request, now_us, [&](Consumer& c) -> Outcome<CompleteReply> {
    if (request.cursor != c.row.cursor || request.step != c.row.step) {
      return Error{ErrorCode::kCursorConflict,
                   "the registry has step " + std::to_string(c.row.step) + ", cursor " + std::to_string(c.row.cursor)};
    }
    if (c.row.state != ConsumerState::kEof && !request.allow_partial) {
      return Error{ErrorCode::kBadRequest, "allow_partial: whole quanta are left from cursor " +
                                               std::to_string(c.row.cursor) + " of " + std::to_string(state_.total())};
    }
    while (!c.leases.empty()) state_.erase_lease(c, c.leases.begin()->first);
    set_consumer_state(c, ConsumerState::kCompleted);
    const std::int64_t skipped = state_.total() - c.row.cursor;
    state_.count(Count::kSkippedTail) += skipped;
    return CompleteReply{true, skipped};
  });
}

Outcome<OkReply> Machine::on(const FailConsumerRequest& request, std::int64_t now_us) {
  return once(request, now_us, [&](Consumer& c) -> Outcome<OkReply> {
    fail_consumer(c, request.reason);
    return OkReply{};
  });
}

void Machine::set_consumer_state(Consumer& c, ConsumerState state) {
  c.row.state = state;
  state_.mark(c);
  state_.touch_all();
}

// Its leases become ghosts: it may still be reading.
void Machine::fail_consumer(Consumer& c, const std::string& reason) {
  c.row.failure = reason;
  c.wait = {};
  set_consumer_state(c, ConsumerState::kFailed);
  if (state_.config().abort_on_consumer_failure) fail_run("consumer " + c.row.consumer_id + " failed: " + reason);
}

void Machine::fail_run(const std::string& reason) {
  if (state_.run.status == RunStatus::kFailed) return;
  state_.run.status = RunStatus::kFailed;
  state_.run.fail_reason = reason;
  state_.mark_run();
  state_.touch_all();
}

}  // namespace levada::fanout
