// What: Scheduler, the one brain: it owns all metadata (tree, pages, queues) and turns requests into StepPlans.
// Owner: whoever composes the process; requests are owned by the scheduler from submit() to their last delta.
// Thread: submit(), abort(), flush_cache(), inspect(), audit() and stop() from any thread (they only post), check_fits()
// too (it reads constants); step() from one thread, either run()'s or a simulator's.
// Invariant: step() decides nothing from wall time except what the injected Clock says; one seed replays one history.
// A page is free only when request, tree and every plan in flight have let go (law 3).
//
// Request states:
//   waiting ──admit()──> prefilling ──last chunk planned──> running ──finish──> draining ──last plan applied──> gone
//      ^                     │                                 │
//      └────── retract() ────┴─────────────────────────────────┘        abort() from any state: draining or gone
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/metrics.h"
#include "core/draft.h"
#include "core/kv_layout.h"
#include "core/request.h"
#include "core/step_executor.h"
#include "sched/options.h"
#include "text/tokenizer.h"

namespace levada::sched {

// What speculation gave, over all requests since the start: tokens per step = 1 + accepted / steps.
struct SpeculationTotals {
  std::uint64_t steps = 0;     // decode steps of a request each, those without drafts included
  std::uint64_t drafts = 0;    // verified
  std::uint64_t accepted = 0;  // of them
};

// A consistent picture of the brain, for /server_info, /metrics and tests.
struct Snapshot {
  std::int32_t running = 0, waiting = 0, prefilling = 0;
  std::int32_t total_pages = 0, free_pages = 0, leased_pages = 0, cached_pages = 0, evictable_pages = 0;
  std::int32_t page_size_tokens = 0;
  std::uint64_t steps = 0, retractions = 0, aborts = 0, evicted_tokens = 0;
  std::int32_t max_running_requests = 0;
  double generation_throughput = 0, cache_hit_rate = 0;  // as in /metrics
  core::DraftProfile draft;                              // that proposes; kNoDraft: none
  SpeculationTotals speculation;
  std::string speculation_note;  // for people: which drafter is at work, and why not a faster one
  Status health;                 // see Scheduler::health()
};

struct Limits {
  std::int32_t context_length_tokens = 0;  // prompt + output
  std::int32_t total_pages = 0;
  std::int32_t vocab_size = 0;
  std::vector<core::Token> eos_token_ids;
  std::int32_t max_samples = 1024;  // of a step; drafts and proposals share what the requests' own samples leave
};

class Scheduler {
 public:
  // References must outlive the scheduler. A null tokenizer means no text: deltas carry ids only, stop strings are
  // refused.
  Scheduler(const Options& options, const Limits& limits, const core::KvLayout& layout, core::StepExecutor& executor,
            core::OutputSink& sink, const text::Tokenizer* tokenizer, const Clock& clock, Metrics& metrics);
  ~Scheduler();

  // The question "can this request ever run here?", asked by serve at the door and by admission (law 5).
  // kPayloadTooLarge (input longer than context or pool, with the numbers) or ok.
  Status check_fits(std::int32_t prompt_tokens) const;
  // kUnavailable with the reason once the executor is lost (StepResult::executor_lost): every live request has ended
  // with it, and every later one is refused with it. Any thread.
  Status health() const;

  // Posts. The answer, refusals included, arrives as deltas at the sink; kAlreadyExists if the id is live. kUnavailable
  // once stop() has ended run(): no delta will come.
  Status submit(core::Request request);
  // Idempotent; an unknown id is ignored. The request's last delta says kAbort.
  void abort(core::RequestId id, Status why);
  // Posts; `done` is called on the scheduler's thread: ok, or kFailedPrecondition naming how many requests run.
  void flush_cache(std::function<void(Status)> done);
  // Posts. Every step planned from then on drafts with it, which the executor must know by its version; with kNoDraft no
  // model drafts. `done` is called on the scheduler's thread when no step in flight names another draft.
  void use_draft(core::DraftProfile profile, std::function<void()> done);
  // Runs `job` on the scheduler's thread between steps, with a fresh snapshot. For /server_info and /debug/audit.
  void inspect(std::function<void(const Snapshot&)> job);
  // inspect() after a full audit; the Status says what is wrong, if anything.
  void audit(std::function<void(const Snapshot&, Status)> job);

  // One turn: drain the mailbox, apply finished steps, admit, plan, submit. True if it did anything.
  bool step();
  // step() until stop(), sleeping on the mailbox when there is nothing to do.
  void run();
  // Live requests end with kAbort and kUnavailable; run() returns when every plan in flight has been applied. What is
  // posted after that is dropped unanswered; submit() says so.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::sched
