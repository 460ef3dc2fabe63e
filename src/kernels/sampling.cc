#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/philox.h"

namespace levada::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Reductions run in this many independent lanes, so that the compiler may use baseline SIMD without reordering a sum.
constexpr std::size_t kLanes = 8;

struct Candidate {
  float weight;
  std::int32_t id;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

// Kept between calls to save the allocations; counts are zero between calls.
struct Scratch {
  std::vector<std::int32_t> counts;
  std::vector<Candidate> candidates;
  std::array<std::vector<Candidate>, 3> parts;  // of border_of_mass
  std::vector<float> weights;
};

Scratch& scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

// e^y for y <= 0, about one unit in the last place, 0 below -87; plain arithmetic, so equal on every CPU.
inline float exp_of_negative(float y) {
  const bool counts = y >= -87.0f;  // false for NaN, too
  const float bounded = counts ? y : -87.0f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding and taking it off rounds to a whole number
  const float n = (bounded * 1.44269504088896341f + kRounder) - kRounder;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440054690583e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const auto bits = std::bit_cast<std::int32_t>(p) + static_cast<std::int32_t>(n) * (1 << 23);
  return counts ? std::bit_cast<float>(bits) : 0.0f;
}

bool in_vocabulary(std::int32_t id, std::span<const float> logits) {
  return id >= 0 && static_cast<std::size_t>(id) < logits.size();
}

void apply_penalties(std::span<float> logits, const SampleParams& params) {
  std::vector<std::int32_t>& counts = scratch().counts;
  if (counts.size() < logits.size()) counts.resize(logits.size());
  const auto count_of = [&](std::int32_t id) -> std::int32_t& { return counts[static_cast<std::size_t>(id)]; };
  for (const std::int32_t id : params.output_history) {
    if (in_vocabulary(id, logits)) ++count_of(id);
  }
  // Applies to an id at its first appearance, and marks it done by taking its count away.
  const auto visit = [&](std::int32_t id, std::int32_t done) {
    if (!in_vocabulary(id, logits) || count_of(id) == done) return;
    const auto count = static_cast<float>(count_of(id));
    float& logit = logits[static_cast<std::size_t>(id)];
    if (count > 0) logit -= params.frequency_penalty * count + params.presence_penalty;
    if (params.repetition_penalty != 1) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    count_of(id) = done;
  };
  constexpr std::int32_t kDone = -1;
  for (const std::int32_t id : params.output_history) visit(id, kDone);
  for (const std::int32_t id : params.prompt_history) visit(id, kDone);
  for (const auto history : {params.output_history, params.prompt_history}) {
    for (const std::int32_t id : history) {
      if (in_vocabulary(id, logits)) count_of(id) = 0;
    }
  }
}

// Makes every logit an ordinary number or -inf; returns the largest.
float clean(std::span<float> logits) {
  for (float& x : logits) {
    const float number = x >= kMinusInfinity ? x : kMinusInfinity;  // false for NaN
    x = number < std::numeric_limits<float>::max() ? number : std::numeric_limits<float>::max();
  }
  float lanes[kLanes];
  std::fill(std::begin(lanes), std::end(lanes), kMinusInfinity);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
    }
  }
  for (; i < logits.size(); ++i) lanes[0] = std::max(lanes[0], logits[i]);
  return *std::max_element(std::begin(lanes), std::end(lanes));
}

// Bits past the words of a mask are clear.
bool allows(std::span<const std::uint32_t> mask, std::size_t id) {
  return mask.empty() || (id / 32 < mask.size() && (mask[id / 32] >> (id % 32) & 1) != 0);
}

void apply_mask(std::span<float> logits, std::span<const std::uint32_t> mask) {
  for (std::size_t first = 0; first < logits.size(); first += 32) {
    const std::uint32_t word = first / 32 < mask.size() ? mask[first / 32] : 0;
    if (word == ~std::uint32_t{0}) continue;
    const auto part = logits.subspan(first, std::min<std::size_t>(32, logits.size() - first));
    for (std::size_t bit = 0; bit < part.size(); ++bit) part[bit] = (word >> bit & 1) != 0 ? part[bit] : kMinusInfinity;
  }
}

void apply_bias(std::span<float> logits, const SampleParams& params) {
  for (std::size_t i = 0; i < params.bias_ids.size(); ++i) {
    const std::int32_t id = params.bias_ids[i];
    if (in_vocabulary(id, logits)) logits[static_cast<std::size_t>(id)] += params.bias_values[i];
  }
}

std::int32_t lowest_allowed(std::size_t vocabulary, const SampleParams& params) {
  const auto banned = [&](std::int32_t id) {
    return std::find(params.banned.begin(), params.banned.end(), id) != params.banned.end();
  };
  std::int32_t masked_in = -1;
  for (std::int32_t id = 0; static_cast<std::size_t>(id) < vocabulary; ++id) {
    if (!allows(params.mask, static_cast<std::size_t>(id))) continue;
    if (!banned(id)) return id;
    if (masked_in < 0) masked_in = id;
  }
  return std::max(masked_in, 0);
}

double mass_of(std::span<const float> weights) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += weights[i + lane];
  }
  for (; i < weights.size(); ++i) lanes[0] += weights[i];
  double mass = 0;
  for (const double lane : lanes) mass += lane;
  return mass;
}

// Index into weights, drawn by mass; u in [0, 1). Walks block sums first, then one block.
std::size_t draw(std::span<const float> weights, double u) {
  constexpr std::size_t kBlock = 256;
  const double target = u * mass_of(weights);
  double before = 0;
  for (std::size_t i = 0; i < weights.size(); i += kBlock) {
    const auto block = weights.subspan(i, std::min(kBlock, weights.size() - i));
    const double mass = mass_of(block);
    double passed = before;
    before += mass;
    if (before <= target) continue;
    for (std::size_t j = 0; j < block.size(); ++j) {
      passed += block[j];
      if (passed > target) return i + j;
    }
  }
  // Rounding left the target a hair above the whole: the last one that can be drawn at all is meant.
  const auto last = std::find_if(weights.rbegin(), weights.rend(), [](float weight) { return weight > 0; });
  return static_cast<std::size_t>(weights.rend() - last) - 1;
}

// The k largest logits, lower ids first among equals, in ascending order of ids; weight holds the logit.
void keep_top_k(std::span<const float> logits, std::size_t k, std::vector<Candidate>& kept) {
  kept.clear();
  for (std::size_t i = 0; i < k; ++i) kept.push_back({logits[i], static_cast<std::int32_t>(i)});
  std::make_heap(kept.begin(), kept.end(), better);  // the worst kept one is at the front
  for (std::size_t i = k; i < logits.size(); ++i) {
    if (!(logits[i] > kept.front().weight)) continue;
    std::pop_heap(kept.begin(), kept.end(), better);
    kept.back() = {logits[i], static_cast<std::int32_t>(i)};
    std::push_heap(kept.begin(), kept.end(), better);
  }
  std::sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

// Splits by weight >= limit, keeping the order; returns the mass of the upper part. No branch depends on the data.
double split(const std::vector<Candidate>& from, float limit, std::vector<Candidate>& upper,
             std::vector<Candidate>& lower) {
  upper.resize(from.size());
  lower.resize(from.size());
  std::size_t up = 0, low = 0;
  double mass = 0;
  for (const Candidate& c : from) {
    const bool above = c.weight >= limit;
    upper[up] = c;
    lower[low] = c;
    up += above;
    low += !above;
    mass += above ? c.weight : 0.0f;
  }
  upper.resize(up);
  lower.resize(low);
  return mass;
}

// The worst member of the smallest best-first set with at least `wanted` mass. Bisects the bits of the border's weight
// (they order like the weights), each time dropping the side that is decided; sorts only the last few.
Candidate border_of_mass(const std::vector<Candidate>& candidates, double wanted) {
  auto& [open, upper, lower] = scratch().parts;
  open = candidates;
  const auto lightest =
      std::min_element(open.begin(), open.end(), [](auto& a, auto& b) { return a.weight < b.weight; });
  auto low = std::bit_cast<std::uint32_t>(lightest->weight);
  auto high = std::bit_cast<std::uint32_t>(1.0f) + 1;  // low <= bits of every open weight < high
  double before = 0;                                   // mass of what is heavier than every open one
  while (open.size() > 32 && high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    const double mass = split(open, std::bit_cast<float>(middle), upper, lower);
    if (before + mass >= wanted || lower.empty()) {
      std::swap(open, upper);
      low = middle;
    } else {
      std::swap(open, lower);
      high = middle;
      before += mass;
    }
  }
  if (high - low > 1) std::sort(open.begin(), open.end(), better);  // else all weigh the same, lower ids first already
  for (const Candidate& c : open) {
    before += c.weight;
    if (before >= wanted) return c;
  }
  return open.back();
}

// Candidates lighter than this are never needed to reach top_p: all of them together hold less than the other 1 -
// top_p. The factor keeps rounding on the safe side.
float surely_outside_top_p(double mass, std::size_t count, float top_p) {
  return static_cast<float>((1.0 - top_p) * mass / static_cast<double>(count) * 0.999);
}

void keep_top_p(std::vector<Candidate>& candidates, double mass, float top_p) {
  const Candidate border = border_of_mass(candidates, top_p * mass);
  std::erase_if(candidates, [&](const Candidate& c) { return better(border, c); });
}

// The candidates that weigh at least floor, in ascending order of ids.
void keep_from(std::span<const float> weights, float floor, std::vector<Candidate>& kept) {
  kept.resize(weights.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    kept[count] = {weights[i], static_cast<std::int32_t>(i)};
    count += weights[i] >= floor;
  }
  kept.resize(count);
}

// logits -> weights relative to the largest, in place.
void to_weights(std::span<float> logits, float largest, float temperature) {
  for (float& x : logits) x = exp_of_negative((x - largest) / temperature);
}

// The candidates' weights side by side, as mass_of and draw want them.
std::span<const float> weights_of(const std::vector<Candidate>& candidates) {
  std::vector<float>& weights = scratch().weights;
  weights.resize(candidates.size());
  std::transform(candidates.begin(), candidates.end(), weights.begin(), [](const Candidate& c) { return c.weight; });
  return weights;
}

}  // namespace

double uniform(std::uint64_t seed, std::int32_t position) {
  const auto word = philox({static_cast<std::uint32_t>(position), 0, 0, 0},
                           {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{word[1]} << 32 | word[0]) >> 11;
  return static_cast<double>(bits) * 0x1.0p-53;
}

double log_mass(std::span<const float> logits) {
  float lanes[kLanes];
  std::fill(std::begin(lanes), std::end(lanes), kMinusInfinity);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    lanes[i % kLanes] = logits[i] > lanes[i % kLanes] ? logits[i] : lanes[i % kLanes];
  }
  const float largest = *std::max_element(std::begin(lanes), std::end(lanes));
  if (!(largest > kMinusInfinity)) return kMinusInfinity;
  std::vector<float>& weights = scratch().weights;
  weights.assign(logits.begin(), logits.end());
  to_weights(weights, largest, 1.0f);
  return largest + std::log(mass_of(weights));
}

std::vector<std::int32_t> largest_logits(std::span<const float> logits, std::size_t count) {
  std::vector<Candidate> kept;
  if (count > 0) keep_top_k(logits, std::min(count, logits.size()), kept);
  std::sort(kept.begin(), kept.end(), better);
  std::vector<std::int32_t> ids;
  for (const Candidate& candidate : kept) ids.push_back(candidate.id);
  return ids;
}

std::int32_t sample_token(const TensorView& view, const SampleParams& params) {
  LEVADA_CHECK(view.rank == 1 && view.dtype == DType::kF32 && view.shape[0] >= 1, "logits: f32 [V]");
  const std::span<float> logits(view.as<float>(), static_cast<std::size_t>(view.shape[0]));
  if (params.frequency_penalty != 0 || params.presence_penalty != 0 || params.repetition_penalty != 1) {
    apply_penalties(logits, params);
  }
  apply_bias(logits, params);
  if (!params.mask.empty()) apply_mask(logits, params.mask);
  for (const std::int32_t id : params.banned) {
    if (in_vocabulary(id, logits)) logits[static_cast<std::size_t>(id)] = kMinusInfinity;
  }
  const float largest = clean(logits);
  if (largest == kMinusInfinity) return lowest_allowed(logits.size(), params);
  if (!(params.temperature > 0) || params.top_k == 1) {
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
  }

  const double u = uniform(params.seed, params.position);
  const bool by_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  const bool by_p = params.top_p<1, by_min = params.min_p> 0;
  const float min_p = std::min(params.min_p, 1.0f);  // the largest weight is exactly 1
  std::vector<Candidate>& candidates = scratch().candidates;
  double mass = 0;
  if (by_k) {
    keep_top_k(logits, static_cast<std::size_t>(params.top_k), candidates);
    for (Candidate& c : candidates) c.weight = exp_of_negative((c.weight - largest) / params.temperature);
    mass = mass_of(weights_of(candidates));
  } else {
    to_weights(logits, largest, params.temperature);
    if (!by_p && !by_min) return static_cast<std::int32_t>(draw(logits, u));
    mass = mass_of(logits);
    const float floor = by_p ? surely_outside_top_p(mass, logits.size(), params.top_p) : min_p;
    keep_from(logits, floor, candidates);
  }
  if (by_p) keep_top_p(candidates, mass, params.top_p);
  if (by_min) std::erase_if(candidates, [&](const Candidate& c) { return c.weight < min_p; });
  return candidates[draw(weights_of(candidates), u)].id;
}

}  // namespace levada::kernels
