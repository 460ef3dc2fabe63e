// What: run_consumer(), the process behind `levada train RECIPE --consumer-id X`: one draft trained on a fan-out run's
// samples, from registration to export.
// Owner: cli calls it; it owns everything it starts.
// Thread: blocks its caller; ends every thread it started.
// Invariant: started again after any end it goes on from its newest checkpoint, and no sample is skipped or counted twice.
// The consumer is complete at the registry only when its final checkpoint and its export are on disk.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "consumer/options.h"
#include "fanout/run_config.h"
#include "train/dflash_trainer.h"
#include "train/socket_collective.h"

namespace levada::train {

struct ConsumerRunRequest {
  Options trainer;  // total_steps 0: as many as the plan has
  model::DraftConfig draft;
  consumer::Options consumer;
  SocketCollective* ranks = nullptr;   // of a trainer of several processes (rank_processes.h)
  fanout::ConsumerSpec window;         // as the producer's; quantum == trainer.samples_per_step() * ranks
  std::filesystem::path target_model;  // whose embedding and head the draft borrows
  std::filesystem::path init_from;     // an exported draft to start from; empty: fresh weights
  std::filesystem::path export_dir;    // empty: no export
  std::string recipe_hash;             // of what shapes this consumer; a run remembers it
  std::string registry_token, store_token;
};

struct ConsumerEvents {
  std::function<void(const StepReport&, std::int64_t cursor)>
      on_step;  // after the step was acknowledged or is about to
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_checkpoint;
  std::function<void(const std::string&)> on_state;  // what it is doing, for people
};

struct ConsumerSummary {
  std::string consumer_id;
  std::int64_t cursor = 0, step = 0;
  std::filesystem::path checkpoint;
  double loss_first = 0, loss_last = 0, accept_len = 0;
  std::int64_t skipped_tail = 0;  // samples at the plan's end that make no whole step
};

// At rank 0, if there are ranks; the others run_peer() (peer_run.h).
// kAborted: stopped (with a checkpoint of the last whole step) or the run has failed; kFailedPrecondition naming the field
// if draft and run do not fit together.
Result<ConsumerSummary> run_consumer(const ConsumerRunRequest& request, std::stop_token stop,
                                     const ConsumerEvents& events);

}  // namespace levada::train
