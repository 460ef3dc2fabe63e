// What: the endpoints that change the running server: flush_cache, abort_request, and the audit.
// Owner: Api.
// Thread: the I/O thread; answers of the scheduler come back through posts.
// Invariant: each is idempotent.
// Fields are listed in docs/api.md.
#pragma once

#include <optional>
#include <string>

#include "serve/field_reader.h"
#include "serve/intake.h"
#include "serve/live_calls.h"
#include "serve/router.h"

namespace levada::serve {

// The body of /abort_request.
struct AbortOrder {
  std::optional<std::string> rid;
  bool all = false;
};
Result<AbortOrder> parse_abort(simdjson::dom::object body);

class AdminRoutes {
 public:
  AdminRoutes(sched::Scheduler& scheduler, LiveCalls& calls, Intake& intake, http::Server& server, const Clock& clock)
      : scheduler_(scheduler), calls_(calls), intake_(intake), server_(server), clock_(clock) {}

  void register_on(Router& router);

 private:
  // Tries until it works or `deadline_us` has passed.
  void flush(const http::Responder& responder, std::int64_t deadline_us);
  void abort_request(http::Request request, const http::Responder& responder);
  void audit(const http::Responder& responder);

  sched::Scheduler& scheduler_;
  LiveCalls& calls_;
  Intake& intake_;
  http::Server& server_;
  const Clock& clock_;
};

}  // namespace levada::serve
