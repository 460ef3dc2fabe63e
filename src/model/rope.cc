#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace levada::model {
namespace {

// Long waves are stretched by `factor`, short ones kept, those between blended.
void scale_llama3(const RopeConfig& rope, std::vector<float>& frequencies) {
  for (float& frequency : frequencies) {
    const double turns = rope.original_context * frequency / (2 * std::numbers::pi);
    const double blend =
        std::clamp((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    frequency = static_cast<float>((1 - blend) * frequency / rope.factor + blend * frequency);
  }
}

void scale_yarn(const RopeConfig& rope, std::int64_t head_dim, std::vector<float>& frequencies) {
  const auto d = static_cast<double>(head_dim);
  auto dimension_of = [&](double rotations) {
    return d * std::log(rope.original_context / (2 * std::numbers::pi * rotations)) / (2 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast), high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    const double frequency = frequencies[j];
    frequencies[j] = static_cast<float>(frequency / rope.factor * ramp + frequency * (1 - ramp));
  }
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t j = 0; j < frequencies.size(); ++j) {
    frequencies[j] =
        static_cast<float>(1.0 / std::pow(rope.theta, 2.0 * static_cast<double>(j) / static_cast<double>(head_dim)));
  }
  switch (rope.kind) {
    case RopeConfig::Kind::kDefault: break;
    case RopeConfig::Kind::kLinear:
      for (float& frequency : frequencies) frequency = static_cast<float>(frequency / rope.factor);
      break;
    case RopeConfig::Kind::kLlama3: scale_llama3(rope, frequencies); break;
    case RopeConfig::Kind::kYarn: scale_yarn(rope, head_dim, frequencies); break;
  }
  for (std::size_t j = 0; j < rope.divisors.size(); ++j) frequencies[j] /= rope.divisors[j];
  return frequencies;
}

void fill_cos_sin(const RopeConfig& rope, std::int64_t head_dim, std::int64_t positions, float* out) {
  const std::vector<float> frequencies = rope_frequencies(rope, head_dim);
  const double factor = rope.kind == RopeConfig::Kind::kYarn ? rope.attention_factor : 1;
  for (std::int64_t position = 0; position < positions; ++position) {
    float* row = out + position * head_dim;
    for (std::size_t j = 0; j < frequencies.size(); ++j) {
      const float angle = static_cast<float>(position) * frequencies[j];
      row[j] = static_cast<float>(std::cos(static_cast<double>(angle)) * factor);
      row[frequencies.size() + j] = static_cast<float>(std::sin(static_cast<double>(angle)) * factor);
    }
  }
}

}  // namespace levada::model
