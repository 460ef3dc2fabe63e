// What: sample_token, the one sampler of all CPU tables, and the counter-based generator it draws from.
// Owner: none; logits are the caller's and clobbered.
// Thread: any; calls on different logits may run at once.
// Invariant: the token depends on logits and params alone, on every CPU alike: one compilation, no fused multiply-adds,
// no libm. NaN counts as -inf, +inf as the largest float; when nothing is left, the lowest id that the mask allows and that
// isn't banned is taken, and if there is none, the lowest the mask allows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace levada::kernels {

// Order: additive penalties over the output (frequency, presence), repetition penalty over prompt and output, biases,
// mask, banned ids; then greedy if temperature is 0 (or less) or top_k is 1, else: divide by temperature, keep the top_k largest, of
// those the smallest set with at least top_p of their mass, of those the ones with at least min_p times the largest
// probability; draw by mass in ascending order of ids. Ids outside the vocabulary in histories and banned are ignored.
std::int32_t sample_token(const TensorView& logits, const SampleParams& params);

// Uniform in [0, 1) with 53 random bits: Philox 4x32-10 with key `seed` and counter `position`.
double uniform(std::uint64_t seed, std::int32_t position);

// Log of the sum of e^logit; NaN counts as -inf.
double log_mass(std::span<const float> logits);
// Ids of the `count` largest logits, best first, lower ids first among equals.
std::vector<std::int32_t> largest_logits(std::span<const float> logits, std::size_t count);

}  // namespace levada::kernels
