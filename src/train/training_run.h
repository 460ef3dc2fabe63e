// What: run_training(), the loop of a trainer: samples in, steps, evaluations, checkpoints and reports out.
// Owner: the consumer's process.
// Thread: the caller's, until the end.
// Invariant: per step: train -> checkpoint if due, durable -> source told of the checkpoint -> source told of the step. A
// source is never told of a step whose due checkpoint isn't durable. The last step always has a checkpoint.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "train/dflash_trainer.h"

namespace levada::train {

struct RunReport {
  std::int64_t steps = 0;  // of the trainer, those before a resume included
  double loss_first = 0, loss_last = 0;
  double tau_last = 0;
  std::filesystem::path checkpoint;  // the last one
  bool ended_early = false;          // the source ended, or `stop` was set, before total_steps
};

struct RunHooks {
  // After every step, with its duration and the wait for its samples.
  std::function<void(const StepReport&, double step_seconds, double wait_seconds)> on_step;
  std::function<void(std::int64_t step, const Metrics&)> on_evaluation;
  // Held-out samples; empty: no evaluation, whatever eval_interval says.
  std::vector<Sample> held_out;
  // Set from another thread: the run ends after the step it is in, with a checkpoint. May be null.
  const std::atomic<bool>* stop = nullptr;
};

// Runs until total_steps, the source's end or `stop`. On a failure the trainer stays as it was after the last whole step;
// no checkpoint is written then.
Result<RunReport> run_training(DflashTrainer& trainer, SampleSource& source, const Clock& clock, const RunHooks& hooks);

}  // namespace levada::train
