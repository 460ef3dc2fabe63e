#include "nn/draft_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace levada::nn {

void loss_weights(const LossRule& rule, std::span<const float> mask, std::span<const float> nll,
                  std::span<float> weights) {
  const std::size_t block = mask.size();
  if (rule.kind == LossKind::kDecay) {
    for (std::size_t o = 0; o < block; ++o) {
      const double distance = o > 1 ? static_cast<double>(o - 1) : 0;
      weights[o] = mask[o] * (rule.gamma > 0 ? static_cast<float>(std::exp(-distance / rule.gamma)) : 1.f);
    }
    return;
  }
  const auto alpha = static_cast<float>(rule.alpha);
  std::vector<float> confidence(block), value(block);  // products up to a slot; what the slots from it on are worth
  float product = 1;
  for (std::size_t o = 0; o < block; ++o) {
    if (mask[o] > 0) product *= (1 - alpha) * std::exp(-nll[o]) + alpha;
    confidence[o] = product;
  }
  float sum = 0;
  for (std::size_t o = block; o-- > 0;) {
    sum += confidence[o] * mask[o];
    value[o] = sum;
  }
  for (std::size_t o = 0; o < block; ++o) {
    float weight = value[o];
    if (rule.kind == LossKind::kDpaceConfidence) weight = confidence[o];
    if (rule.kind == LossKind::kDpaceContinuation)
      weight = value[o] / std::max(confidence[o], std::numeric_limits<float>::min());
    weights[o] = weight * mask[o];
  }
}

std::int64_t accepted_prefix(std::span<const float> mask, std::span<const std::uint8_t> hit) {
  std::int64_t run = 0;
  for (std::size_t o = 0; o < mask.size(); ++o) {
    if (mask[o] <= 0) continue;
    if (hit[o] == 0) break;
    ++run;
  }
  return run;
}

}  // namespace levada::nn
