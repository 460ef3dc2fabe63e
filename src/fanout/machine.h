// What: Machine, the whole registry of one run as a pure state machine: each operation of the protocol is one function of
// (state, request, time), and leaves behind the rows it changed.
// Owner: the Registry (registry room); simulators and the model checker.
// Thread: one at a time.
// Invariant: an operation that answers an error changed nothing a caller or the database could see (the one exception:
// mark_committing or complete_capture of a stale attempt notes its generation as garbage). No clock, no I/O, no randomness: the same
// calls give the same state. audit.h checks every state's invariants.
//
// Entries: fanout/entry_edges.h. Consumers:
//
//              register              heartbeat(ready)          ack: no whole quantum left
//   expected ----------> initializing ------------> ready -----------------------------> eof
//      |                   ^   ^  |                   | resume_consumer (rewind): <----    |
//      | registration      |   |  +---- session TTL --+------------ session TTL -----------+
//      | timeout           |   |                      v
//      |          register |   +--------------- detached
//      |                   |                      | detach_grace
//      +-----------> suspended <------------------+
//   initializing, ready, eof -- complete_consumer --> completed;   any but completed -- fail_consumer,
//   three unfounded report_lost --> failed.   completed and failed are final.
//
// Run: active -- all consumers final, or drain --> draining -- everything removed --> completed (with failures);
//      any -- abort, every consumer failed, or one with abort_on_consumer_failure --> failed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "fanout/error.h"
#include "fanout/messages.h"
#include "fanout/run_state.h"

namespace levada::fanout {

class Machine {
 public:
  // A new run if `rows.run` is unset; else the run as the rows left it, recovered: registry_epoch + 1, sessions fenced,
  // leases turned to ghosts with a full TTL, interrupted captures sent again (burnt where servers keep no journal), ready
  // entries kept. kFailedPrecondition naming
  // the field if the rows are of another run, plan, contract or limits; kInvalidArgument from check(config); kDataLoss
  // if rows contradict each other. The first changes are there to take at once.
  static Result<Machine> open(std::shared_ptr<const RunConfig> config, const Rows& rows, std::int64_t now_us);

  // Answers now, from what is there now: an acquire, claim or removal that would wait answers "none yet"; see waits().
  Outcome<Reply> apply(const Request& request, std::int64_t now_us);
  template <class R>
  Outcome<typename R::Reply> call(const R& request, std::int64_t now_us) {
    Outcome<Reply> outcome = apply(request, now_us);
    if (!outcome.ok()) return outcome.error();
    return std::get<typename R::Reply>(std::move(*outcome));
  }
  // Whether a caller with wait_ms left should be asked again later instead of being told this reply.
  static bool waits(const Request& request, const Reply& reply);
  // The caller of a waiting request is gone or was answered: its demand ends.
  void end_wait(const Request& request);

  // Expiry of leases, sessions, graces and dead workers. Operations judge expiry by their own `now_us` too: calling this
  // late never lets a lease live longer.
  void on_time(std::int64_t now_us);
  // When on_time() or a waiting request next has something to do; INT64_MAX: never.
  std::int64_t next_deadline_us(std::int64_t now_us) const;

  // Rows changed since the last call. Nothing may be told to anybody before they are durable.
  Changes take_changes() { return state_.take_changes(); }
  const RunState& state() const { return state_; }
  SnapshotReply snapshot(std::int64_t now_us) const;

 private:
  explicit Machine(std::shared_ptr<const RunConfig> config) : state_(std::move(config)) {}

  // open()
  void create();
  Status load(const Rows& rows);
  void recover(std::int64_t now_us);
  void give_another_chance();

  // consumer operations (consumer_ops.cc, session.cc)
  Outcome<RegisterReply> on(const RegisterRequest& request, std::int64_t now_us);
  Outcome<CursorReply> on(const ResumeRequest& request, std::int64_t now_us);
  Outcome<AcquireReply> on(const AcquireRequest& request, std::int64_t now_us);
  Outcome<HeartbeatReply> on(const HeartbeatRequest& request, std::int64_t now_us);
  Outcome<AbandonReply> on(const AbandonRequest& request, std::int64_t now_us);
  Outcome<EntryReply> on(const ReportLostRequest& request, std::int64_t now_us);
  Outcome<CursorReply> on(const AdvanceRequest& request, std::int64_t now_us);
  Outcome<OkReply> on(const CheckpointRequest& request, std::int64_t now_us);
  Outcome<CompleteReply> on(const CompleteConsumerRequest& request, std::int64_t now_us);
  Outcome<OkReply> on(const FailConsumerRequest& request, std::int64_t now_us);
  // producer operations (producer_ops.cc)
  Outcome<ClaimReply> on(const ClaimRequest& request, std::int64_t now_us);
  Outcome<EntryReply> on(const MarkCommittingRequest& request, std::int64_t now_us);
  Outcome<EntryReply> on(const CompleteCaptureRequest& request, std::int64_t now_us);
  Outcome<FailCaptureReply> on(const FailCaptureRequest& request, std::int64_t now_us);
  Outcome<RemovalsReply> on(const RemovalsRequest& request, std::int64_t now_us);
  Outcome<EntryReply> on(const FinishEvictionRequest& request, std::int64_t now_us);
  Outcome<ServerLostReply> on(const ServerLostRequest& request, std::int64_t now_us);
  Outcome<SnapshotReply> on(const SnapshotRequest& request, std::int64_t now_us);
  Outcome<OkReply> on(const DrainRequest& request, std::int64_t now_us);
  Outcome<OkReply> on(const AbortRequest& request, std::int64_t now_us);

  // The live consumer behind a session, whose session lives on from now; or why there is none.
  Outcome<Consumer*> session_of(const std::string& session_id, std::int64_t session_epoch, std::int64_t now_us,
                                bool may_be_final = false);
  // Runs `body(consumer)` once per op number; a repeat gets the stored reply.
  template <class R, class Body>
  Outcome<typename R::Reply> once(const R& request, std::int64_t now_us, Body body);
  Outcome<RegisterReply> open_session(Consumer& c, const RegisterRequest& request, std::int64_t now_us);
  std::optional<Error> refuse_registration(const RegisterRequest& request) const;
  RegisterReply registration_of(const Consumer& c) const;
  // Grants or extends one lease; nullopt if the position cannot be leased now.
  std::optional<GrantedLease> grant(Consumer& c, std::int64_t p, std::int64_t now_us);
  void take_back(Consumer& c, std::int64_t p);  // the bytes under its lease are gone
  void move_cursor(Consumer& c, std::int64_t cursor, std::int64_t step);
  void set_consumer_state(Consumer& c, ConsumerState state);
  void fail_consumer(Consumer& c, const std::string& reason);
  void fail_run(const std::string& reason);
  // From absent: queued again after the backoff, or failed when no retries are left.
  void retry_or_give_up(std::int64_t p, const std::string& error, std::int64_t now_us);
  Error stale(std::int64_t p, std::int64_t generation, bool may_write_later, std::int64_t now_us);
  CaptureOrder order_of(std::int64_t p, std::int64_t priority) const;
  bool is_position(std::int64_t p) const { return p >= 0 && p < state_.total(); }
  bool is_drained() const;

  RunState state_;
};

}  // namespace levada::fanout
