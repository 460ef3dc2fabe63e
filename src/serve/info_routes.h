// What: the endpoints that describe: models, model_info, server_info, health, metrics, the chat page.
// Owner: Api.
// Thread: handlers on the I/O thread; /server_info answers from the scheduler's.
// Invariant: none of them changes anything.
// Fields are listed in docs/api.md.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "sched/scheduler.h"
#include "serve/model_context.h"
#include "serve/router.h"

namespace levada::serve {

// What /server_info tells beside the scheduler's state.
struct ServerFacts {
  std::vector<std::pair<std::string, std::string>> arguments;  // of every option, value as JSON: arguments_of()
  std::string kernels_backend;                                 // "cpu avx2", ...
  std::string version;
  std::int64_t started_unix_s = 0;
  std::function<std::string()> capture;  // JSON: capture_facts(); empty on a server that doesn't capture
  std::string control;                   // "host:port" of the arena's control channel; empty: none
  std::function<void()> before_metrics;  // brings figures up to date that are counted elsewhere; may be empty
};

class InfoRoutes {
 public:
  // `unix_s` answers the present date.
  InfoRoutes(const ModelContext& model, ServerFacts facts, sched::Scheduler& scheduler, const Metrics& metrics,
             std::function<std::int64_t()> unix_s)
      : model_(model), facts_(std::move(facts)), scheduler_(scheduler), metrics_(metrics), unix_s_(std::move(unix_s)) {}

  void register_on(Router& router);

 private:
  std::string models() const;
  std::string model_info() const;
  std::string server_info(const sched::Snapshot& snapshot) const;

  const ModelContext& model_;
  ServerFacts facts_;
  sched::Scheduler& scheduler_;
  const Metrics& metrics_;
  std::function<std::int64_t()> unix_s_;
};

}  // namespace levada::serve
