// What: EagleObjective, the loss of an EAGLE-3 rollout: what the draft's own head says against the target's distribution.
// Owner: the trainer; the target's head and scratch are borrowed.
// Thread: the trainer's.
// Invariant: logits exist for a chunk of target tokens at a time: the teacher's once, the draft's of all steps that predict from
// these tokens; gradients are taken while they are there. The chunk size changes no result beyond rounding of sums.
// Formulas: docs/models.md, "EAGLE-3 drafts".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/draft_ops.h"
#include "nn/eagle_batch.h"

namespace levada::nn {

// Sums of one step of the rollout over its rows.
struct EagleStepSums {
  double loss = 0;                  // cross-entropy with the teacher, over the rows that count
  double overlap = 0, counted = 0;  // of those: shared probability, and how many
  double hits = 0, rows = 0;        // drafted tokens that are the teacher's best, of all supervised rows
};

struct EagleResult {
  std::vector<EagleStepSums> steps;
  double num = 0;  // sum over steps of decay^step * loss: what dy is the gradient of
};

class EagleObjective {
 public:
  static constexpr double kDecay = 0.8;  // of a step's weight

  // head [target's vocabulary, hidden]; kept: the target's tokens that the draft knows, ascending. chunk_tokens 0: all at once.
  EagleObjective(at::Tensor head, std::span<const std::int64_t> kept, std::int64_t chunk_tokens, TileOps& ops,
                 Scratch& scratch);

  // y: EagleDraft::forward()'s. last [keys, hidden]: the target's last states after its final norm. If dy is defined it
  // becomes the gradient of num with respect to y, and dlm_head (float32) += that with respect to lm_head. A row counts if the
  // teacher's best token is one that the draft knows.
  EagleResult run(const EagleBatch& batch, const at::Tensor& last, const at::Tensor& y, const at::Tensor& lm_head,
                  const at::Tensor& dy, const at::Tensor& dlm_head);

 private:
  struct Pairs;
  struct Teacher {
    at::Tensor logits, norm, mass;  // over the kept tokens
    std::vector<std::int64_t> best;
  };
  Teacher teach(const at::Tensor& last, std::span<const std::int64_t> tokens);
  Pairs pairs(const EagleBatch& batch, std::span<const std::int64_t> tokens, const Teacher& teacher) const;
  void learn(const Pairs& pairs, const Teacher& teacher, const at::Tensor& y, const at::Tensor& lm_head,
             const at::Tensor& dy, const at::Tensor& dlm_head, EagleResult& result);

  at::Tensor head_, kept_ids_;
  std::vector<std::int64_t> kept_;
  std::vector<bool> is_kept_;  // per token of the target
  std::int64_t chunk_tokens_;
  TileOps& ops_;
  Scratch& scratch_;
};

}  // namespace levada::nn
