// What: StepExecutor, the seam between the brain and whoever computes: an engine worker, a CUDA rank, the simulator.
// Owner: composed at start-up; the scheduler holds a reference.
// Thread: submit() is called on the scheduler's thread and must not wait for the computation.
// Invariant: plans are executed in the order of submission, and each gets exactly one StepResult, in that order.
// The scheduler keeps at most two plans in flight (one-step lookahead).
#pragma once

#include <functional>
#include <memory>

#include "core/step_plan.h"

namespace levada::core {

class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  // Results go to the function given to set_result_sink(), from any thread.
  virtual void submit(std::unique_ptr<StepPlan> plan) = 0;
  // Called once before the first submit().
  virtual void set_result_sink(std::function<void(StepResult)> sink) = 0;
};

}  // namespace levada::core
