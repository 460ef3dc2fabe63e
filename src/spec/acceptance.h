// What: which drafted tokens a verification keeps and what follows them, for drafts without probabilities and with.
// Owner: none, pure functions.
// Thread: any.
// Invariant: whatever the draft, the tokens that come out are distributed as the target's own: accepted drafts, then one
// more. Probabilities are float64, each row sums to 1; coins lie in [0, 1).
// Formulas: spec/dflash.md 3.2: point mass; token-wise rejection (arXiv 2211.17192); block verification (arXiv 2403.10444).
// In service a draft without probabilities needs none of these: core::accepted_drafts() compares it with what each row
// samples by itself, which is the point-mass rule with coins that plain decoding would have thrown.
#pragma once

#include <cstdint>
#include <span>

#include "core/ids.h"

namespace levada::spec {

struct Verdict {
  std::int32_t accepted = 0;  // leading drafts
  core::Token next = 0;       // follows them
  bool operator==(const Verdict&) const = default;
};

// One verification of n - 1 drafts. target: [n, vocabulary], row r the target's distribution of what comes at draft r's
// place (row n - 1: behind all of them). coins: [n]; last: the coin that draws `next`.
struct Verification {
  std::span<const core::Token> drafts;
  std::span<const double> target;
  std::span<const double> coins;
  double last = 0;
  std::int64_t vocabulary = 0;
};

// `argmax` [n]: the target's choices.
Verdict verify_greedy(std::span<const core::Token> drafts, std::span<const core::Token> argmax);
// Thresholds below 1 accept more and keep the distribution no longer.
Verdict verify_point_mass(const Verification& v, double threshold_single = 1, double threshold_accumulated = 1);
// `draft`: [n - 1, vocabulary], what each draft was drawn from.
Verdict verify_tokenwise(const Verification& v, std::span<const double> draft);
Verdict verify_block(const Verification& v, std::span<const double> draft);

}  // namespace levada::spec
