// What: DflashTrainer, one draft in training: weights, optimizer and objective; a step at a time.
// Owner: whoever runs the training loop (train/training_run.h). Shares the frozen tables.
// Thread: one at a time; kernels use the process's OpenMP team.
// Invariant: a step is a pure function of the state, the samples and (seed, sample id, epoch): the same samples after a
// resume give the same weights, bit for bit on the CPU. A failed step leaves the state as it was before it.
// Maths: docs/models.md ("DFlash drafts"); files: docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "model/draft_config.h"
#include "train/collective.h"
#include "train/frozen_tables.h"
#include "train/options.h"
#include "train/sample_source.h"

namespace levada::train {

// Sums over the supervised slots of all blocks that were trained or evaluated, over all ranks.
struct Metrics {
  double loss_num = 0, loss_den = 0;       // weighted negative log likelihood and its weight
  double hits = 0, slots = 0;              // drafted tokens that equal the data's, of all supervised ones
  double accepted_prefix = 0, blocks = 0;  // length of each block's leading run of hits, over blocks with any mask
  std::int64_t samples = 0;
  std::int64_t unlearnable_samples = 0;  // no two adjacent supervised tokens: nothing to learn from

  Metrics& operator+=(const Metrics& other);
  double loss() const { return loss_den > 0 ? loss_num / loss_den : 0; }
  double accuracy() const { return slots > 0 ? hits / slots : 0; }
  // The two chain metrics: drafted tokens accepted per verification, and tokens won by it (the target's own included).
  double mean_accepted_prefix() const { return blocks > 0 ? accepted_prefix / blocks : 0; }
  double tau() const { return blocks > 0 ? accepted_prefix / blocks + 1 : 0; }
};

struct StepReport {
  std::int64_t step = 0;  // 1-based: optimizer steps done after this one
  Metrics metrics;
  double grad_norm = 0;  // before clipping
  double learning_rate = 0;
  bool updated = false;   // false: nothing in the window could be learnt from; the schedule moved on, weights did not
  bool given_up = false;  // by the caller: there was no step, and nothing has changed
};

class DflashTrainer {
 public:
  // A draft with fresh weights drawn from options.seed: N(0, 0.02^2), biases 0, norms 1, the last one 1 / (length of the
  // head's rows) where they are longer than 1.
  // kInvalidArgument when options, config and tables don't fit together. `collective`: nullptr for a single process;
  // must outlive the trainer.
  static Result<std::unique_ptr<DflashTrainer>> create(const Options& options, const model::DraftConfig& config,
                                                       std::shared_ptr<const FrozenTables> tables,
                                                       Collective* collective = nullptr);
  // Continues from a checkpoint folder (a step's, or the `latest` link). kInvalidArgument naming the first field of the
  // contract that differs, kDataLoss for a damaged file.
  static Result<std::unique_ptr<DflashTrainer>> resume(const std::filesystem::path& checkpoint, const Options& options,
                                                       const model::DraftConfig& config,
                                                       std::shared_ptr<const FrozenTables> tables,
                                                       Collective* collective = nullptr);
  virtual ~DflashTrainer() = default;

  // Starts from an exported draft's weights instead (config.json + model.safetensors of the same geometry). Masters are
  // those weights, the optimizer starts empty. REQUIRES: no step was made.
  virtual Status load_weights(const std::filesystem::path& exported) = 0;

  // One optimizer step on exactly options.samples_per_step() samples. kInvalidArgument naming sample and field for a
  // sample of wrong shape or with ids outside the vocabulary. `confirm`, if any, is asked when nothing reads the samples any
  // more and nothing has come of them yet; its false gives the step up.
  using Confirm = std::function<Result<bool>()>;
  Result<StepReport> step(std::span<const Sample> samples) { return step(samples, {}); }
  virtual Result<StepReport> step(std::span<const Sample> samples, const Confirm& confirm) = 0;
  // Metrics without training; anchors are those of (seed, sample id, epoch), as in training.
  virtual Result<Metrics> evaluate(std::span<const Sample> samples) = 0;

  virtual std::int64_t steps() const = 0;
  virtual const model::DraftConfig& config() const = 0;
  virtual const Options& options() const = 0;
  // Bytes of weights, masters, moments, gradients and workspace.
  virtual std::int64_t memory_bytes() const = 0;

  // Writes output_dir/run_id-step{N} whole or not at all, then moves the `run_id-latest` link; checkpoints beyond
  // max_checkpoints and later than N go. Returns the folder. Ranks hold equal state: one of them calls it.
  virtual Result<std::filesystem::path> save() = 0;
  // config.json and model.safetensors with exactly the tensors SGLang and SpecForge load, in options.torch_dtype.
  virtual Status export_to(const std::filesystem::path& folder) = 0;
};

}  // namespace levada::train
