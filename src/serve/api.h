// What: Api, the served surface: every endpoint of docs/api.md, registered on an http::Server.
// Owner: whoever composes the process, in this order: http::Server, Outbox, Scheduler, Api; destroyed in reverse.
// Thread: construct before Server::run() and Scheduler::run(); after that it needs no calls.
// Invariant: everything that isn't parsing happens on the I/O thread; the scheduler is only posted to.
// Shutdown: Scheduler::stop() answers live calls, then Server::stop(), then destroy.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/metrics.h"
#include "core/model_info.h"
#include "http/server.h"
#include "sched/scheduler.h"
#include "serve/capture_calls.h"
#include "serve/draft_control.h"
#include "serve/info_routes.h"
#include "serve/live_samples.h"
#include "serve/options.h"
#include "serve/outbox.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace levada::serve {

// What is served. Pointers may be null (no text, no chat); all must outlive the Api.
struct ServedModel {
  core::ModelInfo info;
  std::int32_t context_length_tokens = 0;  // the scheduler's limit
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;
  std::string tokenizer_folder;  // for clients that count tokens themselves; empty: the model's path
};

class Api {
 public:
  // What it stands on; all must outlive it.
  struct Ground {
    http::Server& server;
    Outbox& outbox;
    sched::Scheduler& scheduler;
    const Clock& clock;
    Metrics& metrics;
    const CaptureGround* capture = nullptr;  // null: this server doesn't capture
    DraftControl* drafts = nullptr;          // null: it takes no drafts
    LiveSamples* samples = nullptr;          // null: no live traffic is kept
  };

  Api(const Options& options, const ServedModel& model, ServerFacts facts, const Ground& ground);
  ~Api();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace levada::serve
