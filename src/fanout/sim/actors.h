// What: the actors of a simulated run: consumers (training processes) and the producer with its remover.
// Owner: one History.
// Thread: the test's.
// Invariant: each step() is one thing that the real process does between two of its waits: one call or one read. An actor
// knows only what it was told, and what its own disk holds.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fanout/sim/world.h"

namespace levada::fanout::sim {

class SimConsumer {
 public:
  SimConsumer(World& world, std::size_t index);

  void step();
  // kill -9: everything but its checkpoints is gone. It is started again by the next step().
  void crash();
  // Stops without dying: its session may expire meanwhile.
  void pause_until(std::int64_t time_us) { paused_until_us_ = time_us; }
  bool finished() const { return finished_; }
  // Positions trained on since the lineage of its present weights began.
  const std::vector<std::int64_t>& trained() const { return trained_; }
  std::int64_t usable() const { return world_.config().total() / spec_.quantum * spec_.quantum; }

 private:
  struct HeldLease {
    std::string token;
    std::int64_t generation = 0;
    std::int64_t server = 0;
    std::int64_t valid_until_us = 0;  // by its own clock, from the send, less the margin
  };

  void start_session();
  void reconcile(const RegisterReply& reply);
  void resume();
  void beat();
  void acquire();
  void begin_read();
  void end_read();
  bool train();  // one optimizer step if the next quantum is in memory
  void save_and_acknowledge();
  void finish();
  // Sends a numbered operation until it is answered; true once it succeeded.
  template <class R>
  bool numbered(R request, ErrorCode* refused = nullptr);
  void on_error(const Error& error);
  OpKey next_op() const { return {session_id_, session_epoch_, op_ + 1}; }

  World& world_;
  std::size_t index_;
  ConsumerSpec spec_;
  std::int64_t process_ = 0;  // counted: names its client nonce
  std::int64_t paused_until_us_ = 0;
  // What the process knows.
  std::string session_id_;
  std::int64_t session_epoch_ = 0;
  std::int64_t op_ = 0;
  bool needs_resume_ = false;
  std::int64_t registry_cursor_ = 0;  // as last told
  std::int64_t registry_step_ = 0;
  std::int64_t step_ = 0;  // optimizer steps in its weights
  std::map<std::int64_t, HeldLease> leases_;
  std::optional<std::pair<std::int64_t, HeldLease>> reading_;
  std::set<std::int64_t> verified_;
  std::vector<std::int64_t> trained_;
  bool at_end_ = false;
  bool finished_ = false;
  std::int64_t save_every_ = 1;
  // What its disk holds: steps with a checkpoint.
  std::set<std::int64_t> disk_{0};
};

class SimProducer {
 public:
  explicit SimProducer(World& world) : world_(world) {}

  // One of: claim, advance one capture, claim removals, perform one.
  void step();
  // The process dies with everything it had under way; the registry dies with it (same process).
  void crash();

 private:
  struct Capture {
    CaptureOrder order;
    std::int64_t server = 0;
    enum class Phase { kSend, kReport, kCommit, kComplete } phase = Phase::kSend;
    bool ok = false;
    bool reply_lost = false;
  };

  void claim();
  void advance(Capture& capture);
  void send(Capture& capture);
  void report_failure(Capture& capture);
  void commit(Capture& capture);
  void complete(Capture& capture);
  void claim_removals();
  void remove_one();
  void done(Capture& capture);

  World& world_;
  std::int64_t claim_id_ = 0;
  std::int64_t process_ = 0;
  bool claim_unanswered_ = false;
  std::int64_t claim_server_ = 0;
  std::deque<Capture> captures_;
  std::deque<Removal> removals_;
};

std::string url_of(std::int64_t server);

}  // namespace levada::fanout::sim
