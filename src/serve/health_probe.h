// What: HealthProbe, /health_generate: really generates one token, or sees the engine at work for others.
// Owner: Api.
// Thread: the I/O thread only.
// Invariant: at most one probe request lives, however often the endpoint is polled (B42); askers share its answer; each
// is answered within the timeout. The probe's prompt has a cache namespace of its own: probing leaves at most that one
// page cached.
//
//   idle ──handle()──> asking ──a token of its own or of others, failure, timeout──> idle (askers answered)
// A full queue refuses the probe, which is no failure: it is tried again at each look, and others' tokens count.
#pragma once

#include <optional>
#include <vector>

#include "http/server.h"
#include "serve/live_calls.h"

namespace levada::serve {

class HealthProbe {
 public:
  static constexpr std::size_t kMaxAskers = 64;

  HealthProbe(LiveCalls& calls, const sched::Scheduler& scheduler, http::Server& server, const Clock& clock,
              std::int64_t timeout_s);

  void handle(const http::Responder& responder);

 private:
  void start();
  void send_probe();
  void look(std::uint64_t round);
  void settle(const Status& health);

  LiveCalls& calls_;
  const sched::Scheduler& scheduler_;
  http::Server& server_;
  const Clock& clock_;
  std::int64_t timeout_us_;
  std::vector<http::Responder> askers_;
  std::uint64_t round_ = 0;  // tells a timer of an earlier probe from this one's
  std::int64_t started_us_ = 0;
  std::optional<CallId> probe_;  // the last one sent in this round
};

}  // namespace levada::serve
