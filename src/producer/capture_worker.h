// What: CaptureWorker, one claim after the other sent to one capture server, and what its reply says brought home to the
// registry.
// Owner: the Producer, several per server.
// Thread: its own; step() from one at a time.
// Invariant: everything that may have been written is on record before the request leaves: the claim itself, durable in the
// registry with the server's name, is the provisional record; whoever dies later, recovery finds and removes it.
// Nothing is adopted unless every row of the reply could be believed (capture_call.h).
//
//   step(): claim_batch ──> POST /generate ──> rows ──captured──> mark_committing ──> complete_capture
//              │                 │ lost, malformed                └─failed──> fail_capture
//              │                 └──> fail_capture of all (retry: same generation), server doubtful
//              └─ nothing to do ──> idle
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/pause.h"
#include "fanout/registry_api.h"
#include "producer/capture_call.h"
#include "producer/server_watch.h"

namespace levada::producer {

class CaptureWorker {
 public:
  struct Options {
    std::string name;  // unique in the run; the registry tells workers apart by it
    std::int64_t batch = 8;
    std::int64_t capture_timeout_us = 300'000'000;
    std::int64_t claim_wait_ms = 500;
    bool skips_failed = false;  // the registry judges whether a sample that cannot be captured ends the run
    StoreChoice store = StoreChoice::kAuto;
  };
  // What workers share and don't own.
  struct Surroundings {
    fanout::RegistryApi& registry;
    const CaptureContract& contract;
    const std::vector<const PreparedSample*>& samples;  // by position
    Pause& pause;                                       // between tries of a registry that cannot write now
    std::function<std::string()> fresh_key;             // from any thread
  };
  enum class Step : std::uint8_t {
    kWorked,
    kIdle,    // nothing was to be claimed
    kFailed,  // the server or the registry does not answer: wait before the next step
    kDone,    // no capture will ever be asked for again
  };

  CaptureWorker(Options options, Surroundings surroundings, ServerWatch& watch, std::unique_ptr<CaptureServer> server)
      : options_(std::move(options)), around_(surroundings), watch_(watch), server_(std::move(server)) {}

  // One round. A Status is the end of the run: a prompt that cannot be captured (unless failed ones are skipped), a reply
  // that breaks the contract, a server that is not this run's, a token that is refused; or kAborted, the producer was
  // stopped.
  Result<Step> step();

  // Calls made, and those whose reply was lost or could not be believed. From any thread.
  std::int64_t capture_calls() const { return capture_calls_; }
  std::int64_t lost_calls() const { return lost_calls_; }

 private:
  Result<Step> claim(std::vector<CaptureTask>& tasks);
  Result<Step> send(const std::vector<CaptureTask>& tasks);
  Status bring_home(const std::vector<CaptureTask>& tasks, const std::vector<CaptureVerdict>& verdicts);
  Result<Step> on_refused_call(const std::vector<CaptureTask>& tasks, const std::string& error);
  Result<Step> on_lost_reply(const std::vector<CaptureTask>& tasks, const std::string& error);
  Status adopt(const CaptureTask& task, const core::SampleRef& ref);
  struct Failure {
    std::string error;
    bool is_retryable = true;
    fanout::Written written = fanout::Written::kNo;
    bool breaks_contract = false;  // … as every other sample will: never skipped
  };
  Status fail(const CaptureTask& task, const Failure& failure);

  const Options options_;
  Surroundings around_;
  ServerWatch& watch_;
  std::unique_ptr<CaptureServer> server_;
  std::int64_t claim_id_ = 1;  // raised when a claim's reply has arrived
  std::atomic<std::int64_t> capture_calls_{0}, lost_calls_{0};
};

}  // namespace levada::producer
