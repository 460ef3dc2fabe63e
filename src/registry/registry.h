// What: Registry, the durable fan-out registry of one run: a Machine, its Storage, and the one thread that owns both.
// Owner: whoever composes the process (the producer's).
// Thread: its own runs everything; submit(), cancel() and stop() from any.
// Invariant: no answer leaves before everything it says is durable. Requests that arrive while a group is being committed
// form the next group. If a commit fails, nobody of its group is told that anything was done (kUnavailable, retryable),
// and memory is read back from the database before the next request.
// Waiting: acquire, claim_batch and claim_removals with wait_ms are asked again after each change and at each deadline of
// the machine, and answered when there is something to say; nothing polls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/status.h"
#include "base/thread.h"
#include "fanout/machine.h"
#include "fanout/registry_api.h"
#include "registry/storage.h"

namespace levada::registry {

class Registry {
 public:
  // Runs on the registry's thread: must not block and must not call stop().
  using Answer = std::function<void(fanout::Outcome<fanout::Reply>)>;
  using Ticket = std::uint64_t;

  // Reads the database and recovers the run (Machine::open); the recovery is durable when this returns.
  static Result<std::unique_ptr<Registry>> open(std::shared_ptr<const fanout::RunConfig> config,
                                                std::unique_ptr<Storage> storage, const Clock& clock);
  ~Registry() { stop(); }

  // `answer` is called exactly once; with kUnavailable if the registry stops first.
  Ticket submit(fanout::Request request, Answer answer);
  // The caller is gone: if its request still waits, it is dropped and answered kUnavailable.
  void cancel(Ticket ticket);
  // Looks at the clock again: for tests whose clock does not run by itself.
  void nudge();
  // Answers what waits, and ends the thread. Idempotent.
  void stop();

 private:
  struct Message {
    enum class Kind : std::uint8_t { kRequest, kCancel, kNudge } kind = Kind::kNudge;
    Ticket ticket = 0;
    fanout::Request request;
    Answer answer;
  };
  struct Waiting {
    Ticket ticket = 0;
    fanout::Request request;
    Answer answer;
    std::int64_t until_us = 0;
  };
  struct Answered {
    Answer answer;
    fanout::Outcome<fanout::Reply> outcome;
  };

  Registry(std::shared_ptr<const fanout::RunConfig> config, std::unique_ptr<Storage> storage, const Clock& clock)
      : config_(std::move(config)), storage_(std::move(storage)), clock_(clock) {}

  Status reload(std::int64_t now_us);
  void run();
  void turn(std::vector<Message>& messages);
  void handle(Message message, std::int64_t now_us);
  void ask_waiting_again(std::int64_t now_us);
  void commit_and_answer(std::int64_t now_us);
  // Everyone is told kUnavailable, and the database is read again.
  void fall_back(const Status& cause, std::int64_t now_us);
  std::int64_t next_wake_us(std::int64_t now_us) const;

  std::shared_ptr<const fanout::RunConfig> config_;  // the machine's too; constant
  std::unique_ptr<Storage> storage_;
  const Clock& clock_;
  std::optional<fanout::Machine> machine_;  // unset after a failed commit, until the database could be read
  std::int64_t reload_after_us_ = 0;
  std::vector<Waiting> waiting_;
  std::vector<Answered> answered_;  // of the present group, held back until it is durable
  std::atomic<Ticket> next_ticket_{1};
  Mailbox<Message> mailbox_;
  Thread thread_;
};

// RegistryApi of a Registry in this process.
class LocalApi final : public fanout::RegistryApi {
 public:
  explicit LocalApi(Registry& registry) : registry_(registry) {}

 protected:
  fanout::Outcome<fanout::Reply> call_any(fanout::Request request) override;

 private:
  Registry& registry_;
};

}  // namespace levada::registry
