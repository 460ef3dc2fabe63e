// What: Session, one consumer's conversation with the registry: registered once, registered again after whatever ended it,
// every operation carried through to an answer.
// Owner: the consumer's process; the RegistryApi, clock and pause must outlive it.
// Thread: any. Numbered operations take turns; acquire and heartbeat never wait for them.
// Invariant: an operation whose reply was lost is sent again with its number, so that it happens once. After a restart of
// the registry the session is opened anew under the same nonce, and an acknowledgement whose reply was lost is recognised
// by the cursor. Two live sessions of one consumer never both get answers.
//
//   closed ──open()──> open ──EPOCH_FENCED, or SESSION_FENCED after an expiry──> registering again ──> open
//                        └──another process registered, the run or the consumer has ended──> every call fails
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/pause.h"
#include "base/status.h"
#include "fanout/registry_api.h"

namespace levada::consumer {

// The Status that an error of the protocol becomes for this side.
Status status_of(const fanout::Error& error);

class Session {
 public:
  struct Options {
    std::int64_t outage_us = 300'000'000;      // how long a registry that does not answer is waited for
    std::int64_t start_wait_us = 300'000'000;  // … at the start, and an older session of this consumer
  };

  // `who`: everything register_consumer sends.
  Session(fanout::RegisterRequest who, Options options, fanout::RegistryApi& registry, const Clock& clock, Pause& pause)
      : who_(std::move(who)), options_(options), registry_(registry), clock_(clock), pause_(pause) {}

  // Registers, waiting for the registry to come up and for an older session of this consumer to expire. kAlreadyExists:
  // the older one is alive; kFailedPrecondition: another run, plan or contract, or a consumer that has ended.
  Status open();
  // Whether open() was refused because this consumer completed in an earlier life: there is nothing left to do.
  bool completed_before() const { return completed_before_; }
  // What the last registration said; its cursor is not kept up to date.
  fanout::RegisterReply registration() const;
  // Rises with each registration: leases granted before can't be renewed.
  std::int64_t epoch() const;

  // `sent_us`: when the answered request left; time limits in the reply count from there. After a new registration the
  // call is made again.
  Result<fanout::AcquireReply> acquire(std::int64_t from, std::int64_t max_n, std::int64_t wait_ms,
                                       std::int64_t& sent_us);
  // One try: kUnavailable if the registry does not answer.
  Result<fanout::HeartbeatReply> heartbeat(bool ready, const std::vector<std::string>& tokens, std::int64_t& sent_us);

  Status resume(std::int64_t cursor, std::int64_t step);
  Status checkpoint(std::int64_t step, std::int64_t cursor, const std::string& uri);
  Status advance(std::int64_t old_cursor, std::int64_t new_cursor, std::int64_t step);
  // Leases that a new registration made void are passed over.
  Status abandon(const std::vector<std::string>& tokens, const std::string& reason);
  Status report_lost(std::int64_t position, std::int64_t generation, fanout::LossReason reason);
  Result<fanout::CompleteReply> complete(std::int64_t step, std::int64_t cursor, bool allow_partial);
  // One try only: whoever fails shall not wait.
  Status fail(const std::string& reason);

 private:
  // Waits between tries, a little longer each time, until `limit_us` since the first have passed.
  class Patience;

  Status register_again(std::int64_t fenced_epoch);
  fanout::SessionKey key() const;
  template <class R>
  Result<typename R::Reply> call(R request, std::int64_t& sent_us);
  // `done_before`: after a new registration, whether the operation had happened; nullopt: it had not.
  template <class R>
  Result<typename R::Reply> numbered(
      R request, const std::function<std::optional<typename R::Reply>(const fanout::RegisterReply&)>& done_before);

  const fanout::RegisterRequest who_;
  const Options options_;
  fanout::RegistryApi& registry_;
  const Clock& clock_;
  Pause& pause_;

  std::mutex turn_;                // held by a numbered operation until its answer
  std::mutex renewing_;            // held while registering again
  bool completed_before_ = false;  // set by open(), before any other thread
  mutable std::mutex mutex_;
  fanout::RegisterReply registration_;
  std::int64_t last_op_ = 0;  // of this registration
};

}  // namespace levada::consumer
