// What: DraftObjective, the frozen head and the loss on top of a draft: numerators, metrics and the gradient of the
// draft's output.
// Owner: the trainer; head and scratch are borrowed.
// Thread: the trainer's.
// Invariant: logits exist for a chunk of blocks at a time and only for supervised slots; a chunk's gradient is taken while
// its logits are there, so that nothing of vocabulary width is kept or computed twice. The chunk size changes no result
// beyond rounding of sums.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/draft_batch.h"
#include "nn/draft_loss.h"
#include "nn/draft_ops.h"
#include "nn/scratch.h"

namespace levada::nn {

// What each block row should have drafted; [blocks * block].
struct DraftLabels {
  std::vector<std::int64_t> labels;  // the data's token at the row's position (the last one's beyond the end)
  std::vector<float> mask;           // 1: supervised and drafted
};

// Labels and masks: slot 0 is the anchor itself, slots beyond the sample's end and unsupervised ones are masked; a hole
// masks its own slot only.
DraftLabels make_draft_labels(const DraftSequence& sequence, std::span<const std::int64_t> loss_mask,
                              std::int64_t block);

struct ObjectiveResult {
  double num = 0, weight = 0;  // sum of weight * nll, sum of weight
  double hits = 0, slots = 0, accepted_prefix = 0, blocks = 0;
  // Per row, 0 where masked.
  std::vector<float> nll, weights;
  std::vector<std::uint8_t> hit;
  std::vector<std::int64_t> prefix;  // per block
};

class DraftObjective {
 public:
  // head [vocabulary, hidden] in the weights' type. chunk_blocks 0: all at once.
  DraftObjective(at::Tensor head, LossRule rule, std::int64_t chunk_blocks, DraftOps& ops, Scratch& scratch);

  // y [rows, hidden]. If dy is defined it becomes the gradient of num with respect to y. `meanwhile` is called when dy is
  // queued, before the host waits for the result: so a device has the backward pass to do while metrics are counted.
  ObjectiveResult run(const DraftLabels& labels, std::int64_t block, const at::Tensor& y, const at::Tensor& dy,
                      const std::function<void()>& meanwhile = {});

 private:
  struct Rows;
  class Fetch;
  at::Tensor logits_of(const Rows& rows, const at::Tensor& y);
  void run_chunk(const Rows& rows, const at::Tensor& y, const at::Tensor& dy, const at::Tensor& coefficients);
  void run_chunk(const Rows& rows, const DraftLabels& labels, std::int64_t block, const at::Tensor& y,
                 const at::Tensor& dy, ObjectiveResult& result);
  void weigh(const DraftLabels& labels, std::int64_t block, std::span<const std::int64_t> ids,
             ObjectiveResult& result) const;
  void pull_back(const Rows& rows, const at::Tensor& logits, const at::Tensor& dy);
  void count_blocks(const DraftLabels& labels, std::int64_t block, ObjectiveResult& result) const;

  at::Tensor head_;
  LossRule rule_;
  std::int64_t chunk_blocks_;
  DraftOps& ops_;
  Scratch& scratch_;
};

}  // namespace levada::nn
