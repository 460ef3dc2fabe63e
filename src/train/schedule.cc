#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace levada::train {

double Schedule::rate(std::int64_t step) const {
  const std::int64_t warm = warmup_steps(), rest = total_steps - warm;
  if (step < warm) return peak * static_cast<double>(step + 1) / static_cast<double>(warm);
  // A single step after the warm-up has no curve: 1 + cos(pi) is 0.
  if (!cosine || rest < 2) return peak;
  const auto length = static_cast<double>(rest), at = static_cast<double>(std::min(step - warm, rest - 1));
  return peak * (1 + std::cos(std::numbers::pi * at / length)) / (1 + std::cos(std::numbers::pi / length));
}

}  // namespace levada::train
