// What: the trainer's options: optimizer, schedule, objective, checkpoints. Names are SpecForge's where it has them.
// Owner: cli composes them from recipe and flags.
// Thread: start-up only.
// Invariant: values are checked by the table and by DflashTrainer::create; whatever changes the result is part of the
// resume contract (docs/formats/checkpoint.md).
#pragma once

#include <cstdint>
#include <string>

#include "base/options.h"

namespace levada::train {

struct Options {
  std::int64_t batch_size = 1;          // samples of a micro-step
  std::int64_t accumulation_steps = 1;  // micro-steps of an optimizer step
  std::int64_t total_steps = 0;         // length of the schedule; REQUIRES > 0
  double learning_rate = 1e-4;
  std::string lr_scheduler = "cosine";
  double warmup_ratio = 0.015;
  double max_grad_norm = 0.5;
  double weight_decay = 0;
  std::string loss_type = "dflash";
  double loss_decay_gamma = 0;  // 0: no decay; 7, 5, 4 suit blocks of 16, 10, 8
  double dpace_alpha = 0.5;
  std::int64_t num_anchors = 512;
  std::int64_t objective_chunk_blocks = 128;  // blocks whose logits exist at once; 0: all. Changes no result.
  std::int64_t max_length = 3072;             // longer samples are cut
  std::int64_t seed = 42;
  std::int64_t threads = 0;  // 0: every core this process may use, shared with its ranks
  std::string device = "cpu";
  std::string torch_dtype = "bfloat16";    // of weights and activations; masters are float32 always
  std::string output_dir, run_id = "run";  // checkpoints are output_dir/run_id-step{N}
  std::int64_t save_interval = 0;          // steps between checkpoints; 0: only at the end
  std::int64_t max_checkpoints = 0;        // newest ones kept; 0: all
  std::int64_t eval_interval = 0;          // 0: never
  std::int64_t log_interval = 50;

  // Samples of one optimizer step on this rank.
  std::int64_t samples_per_step() const { return batch_size * accumulation_steps; }
};

void describe(OptionTable& table, Options& options);

}  // namespace levada::train
