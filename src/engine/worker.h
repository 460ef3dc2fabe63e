// What: Worker, one rank: executes StepPlans in order on its own thread through the layer loop.
// Owner: composed at start-up; owns its Model, KvPool and thread.
// Thread: submit() from the scheduler's thread; everything else on the worker's own. A model that runs ahead has a second
// thread that waits for its tokens, so that the next plan is under way before they have come.
// Invariant: exactly one StepResult per plan, in order; a failed step yields a failed result, never an exception or
// exit. After a failed step the model's device is asked whether any other can succeed (StepResult::executor_lost).
#pragma once

#include <memory>

#include "capture/row_sink.h"
#include "core/step_executor.h"
#include "model/model.h"

namespace levada::engine {

class Worker final : public core::StepExecutor {
 public:
  // `rows` takes the hidden states of captured requests; null: plans must not ask for any. Must outlive the worker.
  Worker(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool, capture::RowSink* rows = nullptr);
  ~Worker() override;  // finishes the plans already submitted, then joins

  void submit(std::unique_ptr<core::StepPlan> plan) override;
  void set_result_sink(std::function<void(core::StepResult)> sink) override;

  // Any thread. Plans may name `version` from now on. REQUIRES: the draft is the model's own, the version is new.
  void offer_draft(core::DraftVersion version, std::shared_ptr<const model::Draft> draft);
  // Any thread. No plan in flight or to come names it.
  void withdraw_draft(core::DraftVersion version);

  // To load drafts with, on any thread.
  model::Model& model();
  const model::Model& model() const;
  const model::KvPool& pool() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::engine
