// What: PlanBuilder, writes one StepPlan from request states, and Flight, the Brain's memory of a submitted plan.
// Owner: the Brain.
// Thread: the scheduler's.
// Invariant: it is the only place that moves planned_tokens, pending_samples and plans_in_flight forward; the pages for
// every row are in the request's table before it is added. A row whose token is still being sampled refers to the plan
// submitted just before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "sched/request_state.h"
#include "sched/sampling_batch.h"

namespace levada::sched {

struct FlightRow {
  RequestState* state = nullptr;
  std::int32_t end_tokens = 0;                      // KV is written up to here
  std::int32_t sample = -1;                         // first index into StepResult::sampled, -1: none
  std::int32_t drafts_first = 0, drafts = 0;        // in Flight::drafts: verified by the samples
  std::int32_t proposed_first = 0, proposed = 0;    // in StepResult::proposed
  std::int32_t scores_first = 0, scores_count = 0;  // in StepResult::scored
  std::int32_t hidden = -1, hidden_rows = 0;        // index into StepResult::hidden, -1: none
};

struct Flight {
  core::StepId step{};
  core::DraftVersion draft = core::kNoDraft;
  std::int32_t samples = 0, scores = 0, hidden = 0, proposed = 0;
  bool logprobs = false;     // of the sampled tokens
  bool speculative = false;  // some request waits for it before it can be planned again
  bool decode_only = true;
  std::int64_t planned_us = 0;
  std::vector<core::Token> drafts;
  std::vector<FlightRow> rows;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(std::int32_t vocabulary) : vocabulary_(vocabulary) {}
  // Step ids are consecutive over the plans that are taken.
  void begin(core::StepId step, core::DraftVersion draft, std::int64_t now_us);
  // The request's newest token, known or being sampled, and behind it its drafts, of which those from the first one on that
  // its guide would refuse are left out.
  void add_decode(RequestState& state);
  // The next `extend_tokens` of its input; samples if they are the last.
  void add_prefill(RequestState& state, std::int32_t extend_tokens);
  std::unique_ptr<core::StepPlan> take_plan();
  Flight take_flight() { return std::move(flight_); }

 private:
  // Rows of known tokens, then of `drafts`.
  void add_slice(RequestState& state, std::int32_t count, std::span<const core::Token> drafts, bool sample);
  void add_samples(RequestState& state, const core::PlanSlice& slice, bool input_unknown);
  // What is wanted of the slice beside its token.
  void add_wishes(RequestState& state, const core::PlanSlice& slice, FlightRow& row);
  void add_capture(const core::CaptureRequest& capture);
  void add_sample(RequestState& state, std::int32_t plan_row, std::int32_t position, std::int32_t drafts_before,
                  bool input_unknown);
  void add_history(const RequestState& state, std::int32_t drafts_before, bool input_unknown, core::SampleRow& row);
  // Which tokens may come: stop ids too early, biases, the request's guide behind `drafts_before` drafts.
  void add_constraints(const RequestState& state, std::int32_t position, std::size_t drafts_before,
                       core::SampleRow& row);
  // Asks the guide what may come now and behind each draft, up to the first that it refuses; the drafts before that one.
  std::span<const core::Token> ask_guide(core::TokenGuide& guide, std::span<const core::Token> drafts);

  const std::int32_t vocabulary_;
  std::unique_ptr<core::StepPlan> plan_;
  SamplingBatch samples_;
  std::vector<std::uint32_t> guide_words_;  // of the slice at hand: a mask for each of its samples
  std::vector<bool> guide_binds_;           // whether that mask says anything
  Flight flight_;
  std::size_t rows_hint_ = 0, slices_hint_ = 0, table_hint_ = 0;  // sizes of the plan before
};

}  // namespace levada::sched
