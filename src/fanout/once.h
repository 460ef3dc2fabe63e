// What: Machine::once, the op-number rule of every numbered operation, shared by the .cc files that define them; has_ended().
// Owner: the Machine.
// Thread: the Machine's.
// Invariant: a number is used up only by a success; then the same number with the same body answers the stored reply.
// Private to this room's .cc files.
#pragma once

#include "fanout/entry_edges.h"
#include "fanout/machine.h"
#include "fanout/op_log.h"

namespace levada::fanout {

// REQUIRES: c.is_terminal().
inline Error has_ended(const Consumer& c) {
  if (c.row.state == ConsumerState::kCompleted) {
    return {ErrorCode::kConsumerCompleted, "consumer " + c.row.consumer_id + " has completed"};
  }
  return {ErrorCode::kConsumerFailed, "consumer " + c.row.consumer_id + " has failed: " + c.row.failure};
}

template <class R, class Body>
Outcome<typename R::Reply> Machine::once(const R& request, std::int64_t now_us, Body body) {
  auto session = session_of(request.key.session_id, request.key.session_epoch, now_us, true);
  if (!session.ok()) return session.error();
  Consumer& c = **session;
  const std::int64_t op = request.key.op;
  const std::string said = "op " + std::to_string(op) + ", the last was " + std::to_string(c.row.last_op);
  if (op < 1) return Error{ErrorCode::kBadRequest, "op counts from 1"};
  const std::int64_t digest = digest_of(request);
  if (op == c.row.last_op) {
    if (digest != c.row.last_op_hash) return Error{ErrorCode::kOpConflict, said + " with another body"};
    auto stored = decode_reply(c.row.last_op_reply);
    LEVADA_CHECK(stored && std::holds_alternative<typename R::Reply>(*stored), "the stored reply is of the same op");
    return std::get<typename R::Reply>(*stored);
  }
  if (op < c.row.last_op) return Error{ErrorCode::kOpStale, said};
  if (op > c.row.last_op + 1) return Error{ErrorCode::kOpGap, said};
  if (c.is_terminal()) return has_ended(c);
  Outcome<typename R::Reply> outcome = body(c);
  if (!outcome.ok()) return outcome;
  c.row.last_op = op;
  c.row.last_op_hash = digest;
  c.row.last_op_reply = encode_reply(*outcome);
  state_.mark(c);
  return outcome;
}

}  // namespace levada::fanout
