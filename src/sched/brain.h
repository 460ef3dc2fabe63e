// What: Brain, all decisions and all metadata of one engine: queues, tree, pages, plans in flight. It has no mailbox, no
// thread and no executor of its own: messages come in as calls, plans and deltas go out as values.
// Owner: the Scheduler, or a simulator.
// Thread: its owner's; check_fits() from any.
// Invariant: a page is free only when request, tree and every plan in flight have let go (law 3); each request gets
// exactly one finish; the same calls in the same order give the same plans.
// State diagram: request_state.h. Intake is in brain.cc, planning in brain_plan.cc, results in brain_apply.cc, drafts in
// brain_speculate.cc.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "core/draft.h"
#include "core/step_plan.h"
#include "kv/draft_ledger.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"
#include "sched/plan_builder.h"
#include "sched/prefill_admission.h"
#include "sched/request_state.h"
#include "sched/scheduler.h"
#include "sched/scheduler_metrics.h"
#include "sched/waiting_queue.h"
#include "spec/pace.h"

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

  // brain_speculate.cc: every plan from now on drafts with it, or without a model if its version is kNoDraft. `done` is
  // called when no plan in flight names another draft any more.
  void use_draft(core::DraftProfile profile, std::function<void()> done);

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

  // Speculation.
  bool drafts_by_model() const;
  bool drafts_by_ngrams() const;
  std::string speculation_note() const;
  std::int32_t most_drafts(std::int32_t own) const;
  // Proposals that the pace would have the draft make; 0 without one.
  std::int32_t wished_of_model(const RequestState& state) const;
  std::int32_t worth_verifying(const RequestState& state, const spec::Track& track, std::int32_t most) const;
  // What the request's next step verifies and asks for. False: it waits for its newest token first.
  bool prepare_drafts(RequestState& state);
  void prepare_first_proposal(RequestState& state, std::int32_t end);
  void cut_drafts(RequestState& state) const;
  std::int32_t proposals_with_room(const RequestState& state, std::int32_t end) const;
  // For drafts and proposals behind token `end`; without enough pages it decodes plainly: nobody is retracted for a guess.
  void obtain_draft_pages(RequestState& state, std::int32_t end);
  void spend_draft_budget(RequestState& state);
  void note_draft_planes(RequestState& state);
  void note_draft_written(const RequestState& state, std::int32_t first);
  void judge_drafts(RequestState& state, const FlightRow& row, std::int32_t accepted);
  void take_proposals(RequestState& state, const FlightRow& row, const core::StepResult& result);
  void learn(RequestState& state, std::span<const core::Token> kept);
  void finish_swaps();

  // Results.
  void apply_row(const Flight& flight, const FlightRow& row, const core::StepResult& result, const Status& status);
  // What the row sampled, as far as its drafts were right. False if the request is over; the state may be gone then.
  bool accept(RequestState& state, const FlightRow& row, const core::StepResult& result, std::int32_t accepted);
  static Status guide(const RequestState& state, std::span<const core::Token> kept);
  // Whether the executor gave all that the flight asked for.
  static Status complete(const Flight& flight, const core::StepResult& result);
  // What it said of the row beside its token.
  static void cut_wishes(const RequestState& state, const FlightRow& row, const core::StepResult& result,
                         std::size_t kept, core::OutputDelta& delta);
  void measure(const Flight& flight);
  static void keep_wishes(const FlightRow& row, const core::StepResult& result, std::int32_t rejected);
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
  AcceptanceMeter acceptance_;

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

  const bool has_draft_planes_;
  const bool bigram_keys_;  // see core::KvPlane::of_next_token
  kv::DraftLedger draft_ledger_;
  core::DraftProfile draft_;
  SpeculationTotals speculation_;
  spec::Pace pace_;
  std::vector<std::function<void()>> swaps_;
  std::vector<core::Token> guess_;  // scratch
  std::int64_t last_apply_us_ = 0;
  std::int64_t accepted_tokens_ = 0;  // by the step being applied

  // Of the step being planned.
  std::vector<RequestState*> decode_rows_;
  std::vector<PrefillRow> prefill_rows_;
  bool pages_short_ = false;
  std::int32_t drafts_left_ = 0, proposals_left_ = 0;  // that it may yet verify, and ask for
  bool head_refused_ = false;                          // by the last admission, for want of slots or pages
  std::int64_t admitted_input_tokens_ = 0, admitted_cached_tokens_ = 0;

  std::vector<core::OutputDelta> deltas_;
  std::vector<std::function<void(Status)>> flushes_;
  std::uint64_t arrivals_ = 0, admissions_ = 0, steps_ = 0, retractions_ = 0, aborts_ = 0;
  std::int64_t reported_evictions_ = 0;
  Status health_;
};

}  // namespace levada::sched
