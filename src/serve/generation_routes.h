// What: the endpoints that generate: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /generate.
// Owner: Api.
// Thread: handlers on the I/O thread, parsing on Intake's.
// Invariant: a client that goes away at any moment leaves no request behind (B42).
// The way of one request: handler -> Intake job (parse) -> LiveCalls::start -> deltas -> Emissions -> Responder.
#pragma once

#include "serve/capture_calls.h"
#include "serve/intake.h"
#include "serve/live_calls.h"
#include "serve/live_samples.h"
#include "serve/model_context.h"
#include "serve/router.h"

namespace levada::serve {

class GenerationRoutes {
 public:
  // `terms`, `captures`: null on a server that doesn't capture. `samples`: null if no live traffic is kept.
  GenerationRoutes(const ModelContext& model, Intake& intake, LiveCalls& calls, const Clock& clock,
                   const CaptureTerms* terms, CaptureCalls* captures, LiveSamples* samples)
      : model_(model),
        intake_(intake),
        calls_(calls),
        clock_(clock),
        terms_(terms),
        captures_(captures),
        samples_(samples) {}

  void register_on(Router& router);

 private:
  struct Parsed {
    CallSpec call;
    std::optional<CaptureBody> capture;
    std::optional<CaptureItem> live_capture;
    bool sampled = false;  // it is kept for draft training
  };

  void accept(Dialect dialect, http::Request request, const http::Responder& responder);
  Result<Parsed> parse(Dialect dialect, simdjson::dom::parser& parser, const http::Request& request,
                       std::int64_t arrival_us) const;
  void start(Parsed parsed, const http::Responder& responder);
  // Answers that are kept for draft training once all are complete.
  void start_sampled(CallSpec call, const http::Responder& responder);
  // An answer whose last bytes wait until it has been captured.
  void start_captured(CallSpec call, CaptureItem item, const http::Responder& responder);

  const ModelContext& model_;
  Intake& intake_;
  LiveCalls& calls_;
  const Clock& clock_;
  const CaptureTerms* const terms_;
  CaptureCalls* const captures_;
  LiveSamples* const samples_;
};

}  // namespace levada::serve
