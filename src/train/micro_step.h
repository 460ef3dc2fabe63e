// What: MicroStep, one forward (and backward) pass over a few samples: from captured bytes to summed gradients.
// Owner: the trainer. Private to the room.
// Thread: the trainer's.
// Invariant: gradients of the loss's numerator are added to the state's; nothing else of the state changes. A sample's
// blocks don't depend on which other samples it comes with.
#pragma once

#include "nn/dflash_draft.h"
#include "nn/draft_objective.h"
#include "train/dflash_trainer.h"
#include "train/draft_state.h"
#include "train/frozen_tensors.h"

namespace levada::train {

nn::LossRule loss_rule(const Options& options);

class MicroStep {
 public:
  // Everything borrowed outlives it.
  MicroStep(const Options& options, const model::DraftConfig& config, DraftState& state, const FrozenTensors& tables,
            nn::DraftOps& ops);

  // kInvalidArgument naming the sample and what is wrong with it.
  Status check(const Sample& sample) const;
  // REQUIRES: samples passed check(). Throws what torch throws.
  Metrics run(std::span<const Sample> samples, bool train);
  std::int64_t bytes() const { return scratch_.bytes(); }

 private:
  nn::DraftSequence sequence_of(const Sample& sample) const;
  // Memory that a device reads by itself (pinned), filled by all threads: the driver's own way from ordinary memory is a
  // fifth as fast.
  at::Tensor staging(std::int64_t keys, std::int64_t width, at::ScalarType type);
  // Captured rows where the draft is.
  at::Tensor upload_features(std::span<const Sample> samples, std::span<const nn::DraftSequence> sequences,
                             std::int64_t keys);

  const Options& options_;
  const model::DraftConfig& config_;
  DraftState& state_;
  nn::DraftOps& ops_;
  at::Tensor embedding_;  // where the draft is
  nn::Scratch scratch_;
  at::Tensor staging_;  // pinned; undefined on the CPU
  nn::DflashDraft draft_;
  nn::DraftObjective objective_;
};

}  // namespace levada::train
