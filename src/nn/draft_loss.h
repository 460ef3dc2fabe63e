// What: the weights and chain metrics of a draft's loss: which slots count, by how much, and how far a block's drafts
// agree with the data. No tensors: plain rows of one block.
// Owner: none.
// Thread: any.
// Invariant: a slot with mask 0 has weight 0; weights are constants of the gradient.
// Formulas: docs/models.md, "DFlash drafts".
#pragma once

#include <cstdint>
#include <span>

namespace levada::nn {

enum class LossKind : std::uint8_t { kDecay, kDpace, kDpaceConfidence, kDpaceContinuation };

struct LossRule {
  LossKind kind = LossKind::kDecay;
  double gamma = 0;  // kDecay: weight of slot o is exp(-(o - 1) / gamma); 0: all 1
  double alpha = 0.5;
};

// Weights of one block's slots from their masks and negative log likelihoods (unread by kDecay).
void loss_weights(const LossRule& rule, std::span<const float> mask, std::span<const float> nll,
                  std::span<float> weights);

// How many slots from slot 1 on hit the data without a miss; masked slots neither count nor break the run.
std::int64_t accepted_prefix(std::span<const float> mask, std::span<const std::uint8_t> hit);

}  // namespace levada::nn
