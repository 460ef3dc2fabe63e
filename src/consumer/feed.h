// What: Feed, the captured samples of one consumer in the plan's order: fetched ahead while the trainer works, handed out a
// whole optimizer step at a time, acknowledged when that step is done.
// Owner: the consumer's process. Session, reader, clock and pause must outlive it; what it hands out ends with it.
// Thread: next(), checkpointed(), stepped() and complete() from the trainer's; fetch_step() from one thread, beat() from one
// thread: their own after start(), the test's otherwise.
// Invariant: samples come out exactly once each and in order, whatever is lost, expired or captured anew below, but for
// those that confirm() takes back. A sample is verified before the trainer sees it, features in place on a device before
// confirm() answers; it stays in memory until its step is acknowledged. "Not yet" waits, "ended" is an empty answer,
// "failed" is a Status (B48).
//
//   cursor_ <= next_out_ <= next_in_:   [acknowledged | handed out | fetched | to be fetched)
//
//   fetch_step():  acquire ──> read, verify ──> fetched          next(): fetched ──> handed out
//                     │            ├─ unreadable ──> report_lost, acquired again later
//                     │            └─ lease over ──> acquired again
//                     ├─ can't be captured, and may be skipped ──> a stand-in without supervised tokens is fetched
//                     └─ none yet, or the window is full ──> waits                confirm(): used, and still what it was
//                                                                                 stepped(): acknowledged, memory let go
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/pause.h"
#include "base/thread.h"
#include "consumer/sample_reader.h"
#include "consumer/session.h"
#include "fanout/run_config.h"

namespace levada::consumer {

class Feed {
 public:
  struct Options {
    std::int64_t read_margin_us = 5'000'000;  // a read that ends later than this before its lease's end is not used
    std::int64_t idle_us = 1'800'000'000;     // next() gives up after so long without a sample
    std::int64_t acquire_wait_ms = 2'000;     // of one long poll
  };
  struct Counts {
    std::int64_t acquired = 0;  // leases granted
    std::int64_t ready_at_request = 0;
    std::int64_t reported_lost = 0, expired_reads = 0;
    std::int64_t skipped = 0;    // passed over: they can't be captured
    std::int64_t waited_us = 0;  // next() without a sample to give
    std::int64_t read_us = 0;    // reading and verifying one sample: the median of the latest
    std::int64_t in_place = 0;   // whose features were used in the store's own memory
    std::int64_t gone_back = 0;  // fetched anew, because something in place was no longer what was read
  };
  enum class Fetch : std::uint8_t {
    kFetched,
    kWaiting,  // nothing is granted yet, or what was read had to be given up
    kFull,     // as much as max_outstanding allows is here
    kEnded,    // everything is fetched
    kFailed,   // next() says why
  };

  Feed(Options options, const fanout::ConsumerSpec& spec, Session& session, SampleReader& reader, const Clock& clock,
       Pause& pause);
  // Ends its threads.
  ~Feed();

  // Makes the registry's cursor that of a trainer with `step` steps behind it, whose checkpoint is at `uri` (empty: a fresh
  // start, step 0). Rewinds acknowledgements that ran ahead of the checkpoint, acknowledges steps it is ahead by.
  // REQUIRES: the session is open, nothing was fetched.
  Status begin(std::int64_t step, const std::string& uri);
  // Starts the two threads. Before begin() only the heartbeat's work is done.
  void start_heartbeat();
  void start_fetching();

  // The next `count` samples, waiting until all are fetched; valid until stepped(). Empty: the plan holds no whole step any
  // more. kAborted: stopped, or the run has failed. REQUIRES: count is the consumer's quantum, and what was handed out
  // before was acknowledged or belongs to the same step.
  Result<std::vector<const ReadSample*>> next(std::int64_t count);
  // Asked after the last use of what was handed out, before anything comes of it: whether all of it still is what its refs
  // name, held by leases with their margin to spare. false: it must not be used; it ends with this call, and next() will
  // give the same positions, fetched anew where need be.
  Result<bool> confirm();
  Status checkpointed(std::int64_t step, const std::string& uri);
  // Step `step` has used what was handed out since the last call.
  Status stepped(std::int64_t step);
  // No more steps will be made. The final checkpoint was told.
  Result<std::int64_t> complete(bool allow_partial);
  Status fail(const std::string& reason) { return session_.fail(reason); }

  // Wakes whoever waits: next() answers kAborted unless its samples are there. From any thread.
  void stop();

  // One round of each thread.
  Fetch fetch_step(std::int64_t wait_ms);
  Status beat();

  std::int64_t cursor() const;
  std::int64_t total() const { return total_; }
  // The first position that belongs to no whole step.
  std::int64_t usable_end() const { return total_ - total_ % spec_.quantum; }
  Counts counts() const;

 private:
  static constexpr std::size_t kReadTimes = 1024;
  struct Held {
    std::string token;
    std::int64_t epoch = 0;        // the session's when it was granted
    std::int64_t deadline_us = 0;  // its end, less the margin
  };

  void run_fetching();
  void run_heartbeat();
  // Puts stand-ins where the next position is the first of `skipped`, and takes those out of it.
  void pass_over(std::deque<std::int64_t>& skipped);
  // Reads one lease; false: the round ends here.
  bool take(const fanout::GrantedLease& lease, std::int64_t sent_us, Fetch& outcome);
  bool keep_sample(ReadSample sample, const fanout::GrantedLease& lease, std::int64_t read_us);
  void keep_lease(const fanout::GrantedLease& lease, std::int64_t sent_us);
  void drop_lease(std::int64_t position);
  void note_read_time_locked(std::int64_t read_us);
  bool is_lease_valid(std::int64_t position) const;
  // Everything from `position` on is to be fetched again.
  Status go_back(std::int64_t position, const std::string& why);
  Fetch fail_with(const Status& status);
  std::int64_t room_locked() const;

  const Options options_;
  const fanout::ConsumerSpec spec_;
  Session& session_;
  SampleReader& reader_;
  const Clock& clock_;
  Pause& pause_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t total_ = 0;
  std::int64_t cursor_ = 0, next_out_ = 0, next_in_ = 0;
  std::int64_t step_ = 0;
  std::deque<std::unique_ptr<ReadSample>> samples_;  // positions cursor_ to next_in_
  std::map<std::int64_t, Held> leases_;              // by position
  bool is_training_ = false;                         // the model is built
  Status failure_;
  Counts counts_;
  std::vector<std::int64_t> read_times_us_;  // of the latest kReadTimes samples, by their number modulo that
  Thread heartbeat_, fetching_;
};

}  // namespace levada::consumer
