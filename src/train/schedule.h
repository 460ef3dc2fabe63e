// What: the learning rate of each optimizer step.
// Owner: none.
// Thread: any.
// Invariant: equals SpecForge's trainer, whose cosine divides by 1 + cos(pi / T) instead of 2; cosine ends above 0.
#pragma once

#include <cstdint>

namespace levada::train {

struct Schedule {
  double peak = 0;
  std::int64_t total_steps = 1;
  double warmup_ratio = 0;
  bool cosine = true;  // else constant after the warm-up

  std::int64_t warmup_steps() const {
    return static_cast<std::int64_t>(warmup_ratio * static_cast<double>(total_steps));
  }
  // The rate of step `step`, 0-based; steps past the end keep the last one's.
  double rate(std::int64_t step) const;
};

}  // namespace levada::train
