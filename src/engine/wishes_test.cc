#include "engine/wishes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace levada::engine {
namespace {

// Row r of a step has logits {r, 0, -inf} and the hidden state {r, -r}; the sampler takes id 1 and spoils the logits.
class ThreeIds final : public model::Forward {
 public:
  explicit ThreeIds(const core::StepPlan& plan) : plan_(plan) {}
  Status layer(int) override { return {}; }
  Status all_layers() override { return {}; }
  device::TensorView hidden() const override { return {}; }
  Result<model::DeviceRows> device_rows(std::int32_t, std::int32_t, bool) override { return unavailable("no device"); }
  Result<device::TensorView> host_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
    EXPECT_TRUE(final_norm);
    memory_.clear();
    for (std::int32_t r = first; r < first + count; ++r) {
      memory_.insert(memory_.end(), {static_cast<float>(r), -static_cast<float>(r)});
    }
    return device::TensorView::of(memory_.data(), DType::kF32, {count, 2});
  }
  Result<device::TensorView> logits(std::span<const std::int32_t> rows) override {
    largest_read = std::max(largest_read, rows.size());
    memory_.clear();
    for (const std::int32_t r : rows) {
      memory_.insert(memory_.end(), {static_cast<float>(r), 0.0f, -std::numeric_limits<float>::infinity()});
    }
    return device::TensorView::of(memory_.data(), DType::kF32, {static_cast<std::int64_t>(rows.size()), 3});
  }
  Result<std::unique_ptr<model::SampledTokens>> sample() override {
    std::fill(memory_.begin(), memory_.end(), 77.0f);
    return model::ready_tokens({std::vector<core::Token>(plan_.samples.size(), 1), {}});
  }
  std::size_t largest_read = 0;

 private:
  const core::StepPlan& plan_;
  std::vector<float> memory_;
};

float log_share(float x, float row) { return x - std::log(std::exp(row) + 1.0f); }

TEST(Wishes, EachSampleThatAsksGetsItsOwnAlternatives) {  // B40
  core::StepPlan plan;
  plan.samples = {{.row = 0}, {.row = 1, .top_logprobs = 0}, {.row = 2, .top_logprobs = 5}};
  EXPECT_TRUE(has_wishes(plan));
  ThreeIds forward(plan);
  core::StepResult result;
  const auto tokens = sample_with_wishes(forward, plan, result);
  EXPECT_EQ(tokens.value()->wait().value().sampled, (std::vector<core::Token>{1, 1, 1}));
  ASSERT_EQ(result.sampled_logprobs.size(), 3u);
  EXPECT_EQ(result.sampled_logprobs[1].token, 1);
  EXPECT_NEAR(result.sampled_logprobs[1].logprob, log_share(0, 1), 1e-6);
  EXPECT_TRUE(result.sampled_logprobs[1].top.empty());
  const auto& top = result.sampled_logprobs[2].top;
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 0);
  EXPECT_NEAR(top[0].logprob, log_share(2, 2), 1e-6);
  EXPECT_EQ(top[2].logprob, core::kLeastLogprob);  // never minus infinity
}

TEST(Wishes, RowsOfThePromptAreScoredInPortions) {
  core::StepPlan plan;
  for (std::int32_t row = 0; row < 150; ++row) plan.scores.push_back({row, row % 2, 1});
  ThreeIds forward(plan);
  core::StepResult result;
  ASSERT_TRUE(sample_with_wishes(forward, plan, result).ok());
  ASSERT_EQ(result.scored.size(), 150u);
  EXPECT_LE(forward.largest_read, 64u);
  EXPECT_TRUE(result.sampled_logprobs.empty());
  for (std::int32_t row = 1; row < 80; ++row) {
    const auto& scored = result.scored[static_cast<std::size_t>(row)];
    const auto at = static_cast<float>(row);
    EXPECT_NEAR(scored.logprob, log_share(row % 2 == 0 ? at : 0, at), 1e-4) << row;
    EXPECT_EQ(scored.top.at(0).token, 0);
  }
}

TEST(Wishes, HiddenStatesAreRowAfterRow) {
  core::StepPlan plan;
  plan.hidden = {{2, 2}, {7, 1}};
  ThreeIds forward(plan);
  core::StepResult result;
  ASSERT_TRUE(sample_with_wishes(forward, plan, result).ok());
  EXPECT_EQ(result.hidden, (std::vector<std::vector<float>>{{2, -2, 3, -3}, {7, -7}}));
}

TEST(Wishes, AnOrdinaryPlanHasNone) {
  core::StepPlan plan;
  plan.samples = {{.row = 0}};
  EXPECT_FALSE(has_wishes(plan));
}

}  // namespace
}  // namespace levada::engine
