#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "kernels/philox.h"

namespace levada::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::int32_t sample(std::vector<float> logits, const SampleParams& params) {
  return sample_token(TensorView::of(logits.data(), DType::kF32, {static_cast<std::int64_t>(logits.size())}), params);
}

std::vector<float> random_logits(std::uint64_t seed, std::size_t count, float spread) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(bits);
  return logits;
}

// The distribution the parameters describe, by sorting and long sums.
std::vector<double> naive_distribution(const std::vector<float>& logits, const SampleParams& params) {
  std::vector<std::size_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(params.top_k));
  }
  std::vector<double> weight;
  double mass = 0;
  for (const std::size_t i : order) {
    weight.push_back(std::exp((double{logits[i]} - logits[order[0]]) / params.temperature));
    mass += weight.back();
  }
  std::size_t kept = 0;
  double sum = 0;
  while (kept < order.size() && (kept == 0 || sum < params.top_p * mass)) sum += weight[kept++];
  while (kept > 1 && weight[kept - 1] < params.min_p) --kept;
  std::vector<double> p(logits.size());
  sum = 0;
  for (std::size_t i = 0; i < kept; ++i) sum += weight[i];
  for (std::size_t i = 0; i < kept; ++i) p[order[i]] = weight[i] / sum;
  return p;
}

// Draws n tokens at positions 0, 1, … and compares frequencies with the naive distribution. For n draws over m
// outcomes E[TV] <= sqrt(m / n) / 2, and it exceeds its mean by t with probability at most exp(-2 n t^2): 1e-9 below.
void expect_distribution(const std::vector<float>& logits, SampleParams params, int n) {
  const std::vector<double> want = naive_distribution(logits, params);
  std::map<std::int32_t, int> counts;
  for (params.position = 0; params.position < n; ++params.position) ++counts[sample(logits, params)];
  double distance = 0;
  int outcomes = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const int count = counts[static_cast<std::int32_t>(i)];
    EXPECT_TRUE(want[i] > 0 || count == 0) << "token " << i << " was cut";
    outcomes += want[i] > 0;
    distance += std::abs(count / static_cast<double>(n) - want[i]) / 2;
  }
  EXPECT_LT(distance, std::sqrt(outcomes / static_cast<double>(n)) / 2 + std::sqrt(std::log(1e9) / (2.0 * n)));
}

TEST(Philox, GivesTheKnownAnswers) {  // kat_vectors of the authors' Random123 library
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, LiesInTheUnitIntervalAndDependsOnSeedAndPosition) {
  std::set<double> seen;
  double sum = 0;
  for (std::int32_t position = 0; position < 1000; ++position) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
      const double u = uniform(seed, position);
      EXPECT_GE(u, 0);
      EXPECT_LT(u, 1);
      seen.insert(u);
      sum += u;
    }
  }
  EXPECT_EQ(seen.size(), 3000u);
  EXPECT_NEAR(sum / 3000, 0.5, 0.03);
}

TEST(Sample, GreedyTakesTheLargestAndTheLowestIdOnTies) {
  EXPECT_EQ(sample({1, 5, 2, 5, 5}, {.temperature = 0}), 1);
  EXPECT_EQ(sample({-3, -1, -2}, {.temperature = 0}), 1);
  EXPECT_EQ(sample({1, 5, 2, 5}, {.temperature = 1, .top_k = 1}), 1);
}

TEST(Sample, NaNCountsAsMinusInfinityAndInfinityAsLargest) {
  EXPECT_EQ(sample({kNaN, 1, 2, kNaN}, {.temperature = 0}), 2);
  EXPECT_EQ(sample({kNaN, 1, kInfinity, 3}, {.temperature = 0}), 2);
  for (std::int32_t position = 0; position < 50; ++position) {
    EXPECT_EQ(sample({kNaN, 1, kInfinity, 3}, {.temperature = 2, .position = position}), 2);
    EXPECT_NE(sample({kNaN, 1, 2, -kInfinity}, {.temperature = 5, .position = position}) % 3, 0);
  }
}

TEST(Sample, WhenNothingIsLeftTheLowestIdThatIsNotBannedIsTaken) {
  const std::vector<std::int32_t> banned = {0, 1};
  EXPECT_EQ(sample({kNaN, -kInfinity, kNaN}, {.temperature = 1, .top_p = 0.5f, .top_k = 2}), 0);
  EXPECT_EQ(sample({7, 7, kNaN, -kInfinity}, {.temperature = 1, .banned = banned}), 2);
  EXPECT_EQ(sample({7, 7}, {.temperature = 0, .banned = banned}), 0) << "all banned";
}

TEST(Sample, BannedIdsAreNeverTakenAndUnknownOnesIgnored) {
  const std::vector<std::int32_t> banned = {1, -5, 99};
  EXPECT_EQ(sample({1, 5, 2}, {.temperature = 0, .banned = banned}), 2);
  for (std::int32_t position = 0; position < 200; ++position) {
    EXPECT_NE(sample({1, 1, 1}, {.temperature = 9, .banned = banned, .position = position}), 1);
  }
}

// logits 1, 4, -2, 3; output 1 1 2, prompt 0 1. frequency 0.5, presence 0.25:
//   1: 4 - 2 * 0.5 - 0.25 = 2.75   2: -2 - 0.5 - 0.25 = -2.75   then repetition 2: 0: 0.5, 1: 1.375, 2: -5.5, 3: 3
TEST(Sample, PenaltiesAreThoseComputedByHand) {
  const std::vector<std::int32_t> output = {1, 1, 2}, prompt = {0, 1};
  std::vector<float> logits = {1, 4, -2, 3};
  SampleParams params{.temperature = 0,
                      .frequency_penalty = 0.5f,
                      .presence_penalty = 0.25f,
                      .repetition_penalty = 2,
                      .prompt_history = prompt,
                      .output_history = output};
  EXPECT_EQ(sample_token(TensorView::of(logits.data(), DType::kF32, {4}), params), 3);
  EXPECT_EQ(logits, (std::vector<float>{0.5f, 1.375f, -5.5f, 3}));
  logits = {1, 4, -2, 3};  // nothing is left over from the call before
  EXPECT_EQ(sample_token(TensorView::of(logits.data(), DType::kF32, {4}), params), 3);
  EXPECT_EQ(logits, (std::vector<float>{0.5f, 1.375f, -5.5f, 3}));
}

TEST(Sample, FrequencyAndPresenceCountTheOutputOnly) {
  const std::vector<std::int32_t> prompt = {1, 1, 1, 77};
  EXPECT_EQ(
      sample({1, 1.5f, 0}, {.temperature = 0, .frequency_penalty = 2, .presence_penalty = 2, .prompt_history = prompt}),
      1);
}

TEST(Sample, TopKKeepsExactlyKLowerIdsFirst) {
  std::set<std::int32_t> seen;
  for (std::int32_t position = 0; position < 300; ++position) {
    seen.insert(sample({2, 3, 2, 2, 1}, {.temperature = 5, .top_k = 3, .position = position}));
  }
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1, 2}));
}

TEST(Sample, TopPKeepsTheSmallestSetWithAtLeastItsMass) {
  const auto seen_with = [](float top_p) {
    std::set<std::int32_t> seen;
    for (std::int32_t position = 0; position < 500; ++position) {
      seen.insert(sample({0, 0, 0, 0}, {.top_p = top_p, .position = position}));
    }
    return seen.size();
  };
  EXPECT_EQ(seen_with(0.0f), 1u);
  EXPECT_EQ(seen_with(0.25f), 1u);
  EXPECT_EQ(seen_with(0.26f), 2u);
  EXPECT_EQ(seen_with(0.5f), 2u);
  EXPECT_EQ(seen_with(0.75f), 3u);
  EXPECT_EQ(seen_with(0.76f), 4u);
}

TEST(Sample, MinPIsRelativeToTheLargestProbability) {
  std::set<std::int32_t> seen;  // probabilities 1 : 0.5 : 0.25 : 0.125
  for (std::int32_t position = 0; position < 500; ++position) {
    seen.insert(sample({0, -0.6931f, -1.3862f, -2.08f}, {.min_p = 0.2f, .position = position}));
  }
  EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1, 2}));
}

TEST(Sample, FollowsTheSoftmaxOfItsParameters) {
  expect_distribution({0, 1, 2, 3, -1}, {.temperature = 1, .seed = 5}, 20000);
  expect_distribution({0, 1, 2, 3, -1}, {.temperature = 0.5f, .seed = 6}, 20000);
  expect_distribution({0, 1, 2, 3, -1}, {.temperature = 2, .min_p = 0.3f, .seed = 7}, 20000);
  expect_distribution(random_logits(1, 1000, 3), {.temperature = 0.9f, .seed = 8}, 5000);
  expect_distribution(random_logits(1, 1000, 3), {.temperature = 1, .top_p = 0.8f, .seed = 9}, 5000);
  expect_distribution(random_logits(2, 1000, 0.2f), {.temperature = 1, .top_p = 0.6f, .seed = 10}, 5000);
  expect_distribution(random_logits(2, 1000, 2), {.top_k = 40, .seed = 11}, 5000);
  expect_distribution(random_logits(3, 1000, 2), {.top_p = 0.7f, .min_p = 0.1f, .top_k = 200, .seed = 12}, 5000);
}

TEST(Sample, TheSameSeedAndPositionGiveTheSameTokenAndOthersDiffer) {
  const std::vector<float> logits = random_logits(4, 1000, 1);
  std::set<std::int32_t> by_position, by_seed;
  for (std::int32_t i = 0; i < 100; ++i) {
    const SampleParams params{.seed = 3, .position = i};
    EXPECT_EQ(sample(logits, params), sample(logits, params));
    by_position.insert(sample(logits, params));
    by_seed.insert(sample(logits, {.seed = static_cast<std::uint64_t>(i), .position = 3}));
  }
  EXPECT_GT(by_position.size(), 50u);
  EXPECT_GT(by_seed.size(), 50u);
}

TEST(Sample, CallsOnDifferentLogitsMayRunOnSeveralThreadsAtOnce) {
  const std::vector<float> logits = random_logits(6, 2000, 2);
  const std::vector<std::int32_t> history = {1, 2, 3, 2};
  const auto params_at = [&](std::int64_t i) {
    return SampleParams{.top_p = 0.9f,
                        .top_k = i % 2 == 0 ? 0 : 50,
                        .repetition_penalty = 1.2f,
                        .output_history = history,
                        .position = static_cast<std::int32_t>(i)};
  };
  std::vector<std::int32_t> want(64), got(64);
  for (std::int64_t i = 0; i < 64; ++i) want[static_cast<std::size_t>(i)] = sample(logits, params_at(i));
  ThreadPool pool(3);
  pool.parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) got[static_cast<std::size_t>(i)] = sample(logits, params_at(i));
  });
  EXPECT_EQ(got, want);
}

TEST(Sample, HoldsAtTheEdgesOfItsParameters) {
  const std::vector<float> logits = random_logits(5, 777, 4);
  const std::int32_t best = sample(logits, {.temperature = 0});
  EXPECT_EQ(sample(logits, {.temperature = 1e-30f}), best);
  EXPECT_EQ(sample(logits, {.min_p = 1}), best);
  EXPECT_EQ(sample(logits, {.min_p = 5}), best);
  EXPECT_EQ(sample(logits, {.top_p = 0}), best);
  EXPECT_EQ(sample({3}, {.top_p = 0.5f, .top_k = 10}), 0);
  for (const float temperature : {1e30f, kInfinity}) {
    const std::int32_t token = sample(logits, {.temperature = temperature});
    EXPECT_GE(token, 0);
    EXPECT_LT(token, 777);
  }
}

TEST(Sample, AMaskAllowsItsIdsAlone) {
  std::vector<float> logits(70, 1.0f);
  logits[3] = logits[69] = 50;
  logits[40] = 2;
  const std::vector<std::uint32_t> mask = {1u << 7, 1u << 8, 1u << 5};  // 7, 40, 69
  SampleParams params;
  params.temperature = 0;
  params.mask = mask;
  EXPECT_EQ(sample(logits, params), 69);
  logits[69] = -1;
  EXPECT_EQ(sample(logits, params), 40);
  params.temperature = 1;
  std::set<std::int32_t> drawn;
  for (params.position = 0; params.position < 500; ++params.position) drawn.insert(sample(logits, params));
  EXPECT_EQ(drawn, (std::set<std::int32_t>{7, 40, 69}));
}

TEST(Sample, IdsPastAMaskAreNotAllowed) {
  std::vector<float> logits(70, 1.0f);
  logits[69] = 50;
  const std::vector<std::uint32_t> mask = {1u << 7};
  SampleParams params;
  params.temperature = 0;
  params.mask = mask;
  EXPECT_EQ(sample(logits, params), 7);
}

TEST(Sample, WhenAllThatAMaskAllowsIsBannedTheMaskWins) {
  const std::vector<std::uint32_t> mask = {1u << 7 | 1u << 9};
  const std::vector<std::int32_t> banned = {7, 9};
  SampleParams params;
  params.mask = mask;
  params.banned = banned;
  EXPECT_EQ(sample(std::vector<float>(32, 1.0f), params), 7);
  params.banned = std::span(banned).first(1);
  EXPECT_EQ(sample(std::vector<float>(32, 1.0f), params), 9);
}

TEST(Sample, ABiasIsAddedAfterThePenalties) {
  const std::vector<std::int32_t> output = {1};
  const std::vector<std::int32_t> ids = {1, 2, 99};
  std::vector<float> values = {0.9f, -100, 5};
  SampleParams params;
  params.temperature = 0;
  params.repetition_penalty = 2;
  params.output_history = output;
  params.bias_ids = ids;
  params.bias_values = values;
  EXPECT_EQ(sample({1.3f, 1, 50}, params), 1);  // 1/2 + 0.9 = 1.4; were the bias added first it would be 0.95
  values[0] = 0.7f;
  EXPECT_EQ(sample({1.3f, 1, 50}, params), 0);
}

TEST(LogMass, IsTheLogOfTheSumOfPowers) {
  const std::vector<float> logits = random_logits(3, 5000, 3);
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x});
  EXPECT_NEAR(log_mass(logits), std::log(sum), 1e-6);
  EXPECT_NEAR(log_mass(std::vector<float>{1000, 1000, kNaN, -kInfinity}), 1000 + std::log(2.0), 1e-6);
  EXPECT_EQ(log_mass(std::vector<float>{-kInfinity, kNaN}), -kInfinity);
}

TEST(LargestLogits, AreBestFirstAndLowerIdsFirstAmongEquals) {
  EXPECT_EQ(largest_logits(std::vector<float>{1, 5, 3, 5, 2}, 3), (std::vector<std::int32_t>{1, 3, 2}));
  EXPECT_EQ(largest_logits(std::vector<float>{1, 2}, 9), (std::vector<std::int32_t>{1, 0}));
  EXPECT_TRUE(largest_logits(std::vector<float>{1, 2}, 0).empty());
}

}  // namespace
}  // namespace levada::kernels
