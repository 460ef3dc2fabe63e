// What: Brain, all decisions and all metadata of one engine: queues, tree, pages, plans in flight. It has no mailbox, no
// thread and no executor of its own: messages come in as calls, plans and deltas go out as values.
// Owner: the Scheduler, or a simulator.
// Thread: its owner's; check_fits() from any.
// Invariant: a page is free only when request, tree and every plan in flight have let go (law 3); each request gets
// exactly one finish; the same calls in the same order give the same plans.
// State diagram: request_state.h. Intake is in brain.cc, planning in brain_plan.cc, results in brain_apply.cc.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "core/step_plan.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"
#include "sched/plan_builder.h"
#include "sched/prefill_admission.h"
#include "sched/request_state.h"
#include "sched/scheduler.h"
#include "sched/scheduler_metrics.h"
#include "sched/waiting_queue.h"

namespace levada::sched {

class Brain {
 public:
  // References must outlive the brain. A null tokenizer: see Scheduler.
  Brain(const Options& options, const Limits& limits, const core::KvLayout& layout, const text::Tokenizer* tokenizer,
        const Clock& clock, Metrics& metrics);
  ~Brain();

  Status check_fits(std::int32_t prompt_tokens) const;
  // See Scheduler::health().
  const Status& health() const { return health_; }

  // brain.cc: what comes from outside.
  void submit(core::Request request);
  void abort(core::RequestId id, const Status& why);
  void abort_all(const Status& why);
  void flush_cache(std::function<void(Status)> done);
  Snapshot snapshot() const;
  Status audit() const;
  // Nothing lives and no plan is in flight.
  bool idle() const { return live_.empty() && flights_.empty(); }

  // brain_plan.cc: the next step; null when there is nothing to compute or enough is in flight.
  std::unique_ptr<core::StepPlan> next_plan();

  // brain_apply.cc: the answer to the oldest plan in flight.
  void apply(const core::StepResult& result);

  // What happened since the last call.
  std::vector<core::OutputDelta> take_deltas();
  // Feeds the gauges.
  void publish_metrics();
  // For audits and simulators.
  const kv::PagePool& pool() const { return pool_; }

 private:
  // Why a request is refused at the door; ok to let it in.
  Status door(const core::Request& request) const;
  std::int64_t priority_of(const core::Request& request) const;
  void flush_when_drained();
  std::vector<RequestState*> live_by_arrival() const;

  // n answers to one prompt: all but the first wait for its KV.
  bool hold_for_leader(RequestState& state);
  void release_followers(RequestState& leader, bool computed);
  std::int64_t waiting_requests() const { return waiting_.size() + static_cast<std::int64_t>(followers_.size()); }

  // Planning.
  void preempt_for_head();
  void run(RequestState& state);
  void make_room();
  bool obtain_page(RequestState& state);
  std::optional<kv::PageLease> allocate(std::int32_t pages);
  bool release_is_coming() const;
  RequestState& youngest() const;
  void retract(RequestState& state);
  void complete_retraction(RequestState& state);
  void admit();
  AdmissionLimits admission_limits() const;
  std::int64_t reserved_pages() const;
  bool continue_chunk(PrefillAdmission& admission);
  kv::PrefixMatch cached_prefix(const RequestState& state);
  bool admit_head(PrefillAdmission& admission);
  void on_admitted(RequestState& state, std::int32_t prefix_tokens, std::int32_t extend_tokens);
  void build(core::StepId step);

  // Results.
  void apply_row(const FlightRow& row, const core::StepResult& result, const Status& status);
  // False if that was its last token; the state may be gone then.
  bool accept(RequestState& state, core::Token token, const core::TokenLogprob* logprob);
  static Status guide(const RequestState& state, std::span<const core::Token> kept);
  // Whether the executor gave all that the flight asked for.
  static Status complete(const Flight& flight, const core::StepResult& result);
  // What it said of the row beside its token.
  static void keep_wishes(const FlightRow& row, const core::StepResult& result);
  // The executor will compute nothing any more: every live request ends with the reason.
  void lose(const Status& why);
  void commit(RequestState& state);
  // The request's last delta; it gets no further plan.
  void finish(RequestState& state, core::Finish finish, core::OutputDelta delta);
  void leave_queues(RequestState& state);
  void retire(const RequestState& state);
  core::OutputDelta delta_of(const RequestState& state) const;

  struct PrefillRow {
    RequestState* state;
    std::int32_t extend_tokens;
  };

  const Options options_;
  const Limits limits_;
  const core::KvLayout layout_;
  const text::Tokenizer* const tokenizer_;
  const Clock& clock_;
  SchedulerMetrics metrics_;
  ThroughputMeter throughput_;

  kv::PagePool pool_;
  kv::RadixTree tree_;
  std::unordered_map<core::RequestId, std::unique_ptr<RequestState>> live_;
  std::vector<std::unique_ptr<RequestState>> draining_;
  WaitingQueue waiting_;
  std::vector<RequestState*> followers_;  // of a leader whose prompt isn't computed; in no queue
  std::vector<RequestState*> running_;    // by priority, then in order of admission
  RequestState* chunked_ = nullptr;       // the one that is prefilling
  std::deque<Flight> flights_;
  PlanBuilder builder_;

  // Of the step being planned.
  std::vector<RequestState*> decode_rows_;
  std::vector<PrefillRow> prefill_rows_;
  bool pages_short_ = false;
  bool head_refused_ = false;  // by the last admission, for want of slots or pages
  std::int64_t admitted_input_tokens_ = 0, admitted_cached_tokens_ = 0;

  std::vector<core::OutputDelta> deltas_;
  std::vector<std::function<void(Status)>> flushes_;
  std::uint64_t arrivals_ = 0, admissions_ = 0, steps_ = 0, retractions_ = 0, aborts_ = 0;
  std::int64_t reported_evictions_ = 0;
  Status health_;
};

}  // namespace levada::sched
