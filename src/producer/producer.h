// What: Producer, the run's one supplier: capture workers for every server, the remover, and a watch over the servers, from
// the first claim to the last removed object.
// Owner: run_producer() (producer_run.h); the registry, the samples and the contract must outlive it.
// Thread: run() on its caller's; it starts one thread per worker and one for removals, all ended when it returns.
// Invariant: it never returns a success while anything that was captured may still be stored. A failed run is told to the
// registry before the long clean-up begins, so that no consumer can take a crash for an end.
//
//   run(): servers described ──> workers and remover at work ──registry: nothing left to capture──> draining
//                                      │ a prompt or every server given up: abort                      │ all removed
//                                      └────────────────────────────────────────────> draining ────────┴──> swept, done
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/pause.h"
#include "base/thread.h"
#include "fanout/registry_api.h"
#include "producer/capture_worker.h"
#include "producer/removal_worker.h"
#include "producer/server_watch.h"

namespace levada::producer {

class Producer {
 public:
  struct Options {
    std::string run_id;
    std::vector<std::string> server_urls;  // a URL that stands there k times gets k times the workers
    std::int64_t concurrency = 1;          // workers for each
    std::int64_t capture_batch = 8;
    bool skips_failed = false;
    std::int64_t capture_timeout_us = 300'000'000;
    std::int64_t check_interval_us = 5'000'000;  // between two looks at a server that works
    std::int64_t retry_interval_us = 500'000;    // … and at one that does not
    ServerWatch::Options server;
  };
  using OnProgress = std::function<void(const fanout::SnapshotReply&)>;

  Producer(Options options, fanout::RegistryApi& registry, const CaptureContract& contract,
           const std::vector<const PreparedSample*>& samples, const Clock& clock, ConnectServer connect,
           OpenStore open_store);
  ~Producer();

  // The last snapshot once everything is removed and the run has ended well. A Status says why the run failed, or lists
  // what could not be removed, or is kAborted after `stop` (then the run may be taken up again).
  Result<fanout::SnapshotReply> run(std::stop_token stop, const OnProgress& on_progress);

 private:
  struct Event {
    bool is_drained = false;  // the remover has finished
    Status failure;
  };
  struct Server {
    explicit Server(std::unique_ptr<ServerWatch> server_watch) : watch(std::move(server_watch)) {}
    std::unique_ptr<ServerWatch> watch;
    std::unique_ptr<CaptureServer> connection;  // for descriptions
    std::int64_t next_look_us = 0;
  };

  void start_threads();
  void run_capture_worker(CaptureWorker& worker);
  void run_remover();
  // Looks at each server whose time has come; a Status ends the run.
  Status look_at_servers();
  Status check_not_all_given_up() const;
  Result<fanout::SnapshotReply> snapshot();
  // One turn of the main loop; true once the remover has finished or nothing more can be removed.
  Result<bool> turn(const OnProgress& on_progress);
  bool is_stuck(const fanout::SnapshotReply& snapshot) const;
  static bool awaits_late_writes_alone(const fanout::SnapshotReply& snapshot);
  void abort_run(const Status& cause);
  Result<fanout::SnapshotReply> finish();

  const Options options_;
  fanout::RegistryApi& registry_;
  const CaptureContract& contract_;
  const std::vector<const PreparedSample*>& samples_;
  const Clock& clock_;
  ConnectServer connect_;
  StoppablePause pause_;
  Mailbox<Event> events_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<ServerWatch*> watches_;
  std::unique_ptr<RemovalWorker> remover_;
  std::vector<std::unique_ptr<CaptureWorker>> workers_;
  Status failure_;  // why the run was aborted
  std::int64_t next_progress_us_ = 0;
  std::vector<Thread> threads_;  // last: they use everything above
};

}  // namespace levada::producer
