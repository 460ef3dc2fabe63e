// What: the endpoints that generate: /v1/chat/completions, /v1/completions, /generate.
// Owner: Api.
// Thread: handlers on the I/O thread, parsing on Intake's.
// Invariant: a client that goes away at any moment leaves no request behind (B42).
// The way of one request: handler -> Intake job (parse) -> LiveCalls::start -> deltas -> Emissions -> Responder.
#pragma once

#include "serve/intake.h"
#include "serve/live_calls.h"
#include "serve/model_context.h"
#include "serve/router.h"

namespace levada::serve {

class GenerationRoutes {
 public:
  GenerationRoutes(const ModelContext& model, Intake& intake, LiveCalls& calls, const Clock& clock)
      : model_(model), intake_(intake), calls_(calls), clock_(clock) {}

  void register_on(Router& router);

 private:
  void accept(Dialect dialect, http::Request request, const http::Responder& responder);
  Result<CallSpec> parse(Dialect dialect, simdjson::dom::parser& parser, const std::string& body,
                         std::int64_t arrival_us) const;
  void start(CallSpec call, const http::Responder& responder);

  const ModelContext& model_;
  Intake& intake_;
  LiveCalls& calls_;
  const Clock& clock_;
};

}  // namespace levada::serve
