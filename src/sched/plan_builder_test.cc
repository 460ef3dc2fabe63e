#include "sched/plan_builder.h"

#include <gtest/gtest.h>

namespace levada::sched {
namespace {

using core::StepId;
using core::Token;

class PlanBuilderTest : public testing::Test {
 protected:
  // A request whose prompt is about to be prefilled.
  std::unique_ptr<RequestState> state(std::vector<Token> prompt, core::SamplingParams sampling = {}) {
    core::Request request;
    request.id = core::RequestId{++ids_};
    request.prompt = std::move(prompt);
    request.sampling = sampling;
    StopRules rules = make_stop_rules(sampling, std::vector<Token>{2}, 100);
    auto state = std::make_unique<RequestState>(std::move(request), kv::NamespaceRef(), std::move(rules), nullptr);
    state->pages.grow(pool_.try_allocate(4).value());
    state->input_tokens = state->known_tokens();
    return state;
  }
  std::unique_ptr<core::StepPlan> next(const std::function<void()>& add) {
    builder_.begin(StepId{++step_}, core::kNoDraft, 0);
    add();
    builder_.take_flight();
    return builder_.take_plan();
  }
  kv::PagePool pool_{64};
  PlanBuilder builder_{70};
  std::uint64_t ids_ = 0, step_ = 0;
};

TEST_F(PlanBuilderTest, AChunkThatIsNotTheLastAsksForNoToken) {
  auto s = state({10, 11, 12, 13, 14});
  const auto first = next([&] { builder_.add_prefill(*s, 4); });
  EXPECT_EQ(first->tokens, (std::vector<Token>{10, 11, 12, 13}));
  EXPECT_EQ(first->slices.at(0).sample_row, -1);
  EXPECT_EQ(first->slices.at(0).next_token, 14);
  const auto last = next([&] { builder_.add_prefill(*s, 1); });
  EXPECT_EQ(last->slices.at(0).range, (core::TokenRange{s->request.id, 4, 1}));
  EXPECT_EQ(last->slices.at(0).next_token, -1) << "its sample says it";
  EXPECT_EQ(last->samples.at(0).position, 5);
  EXPECT_EQ(last->samples.at(0).row, 0);
}

TEST_F(PlanBuilderTest, ATokenStillBeingSampledIsNamedByTheSampleOfThePlanBefore) {
  auto a = state({10, 11}), b = state({20});
  next([&] {
    builder_.add_prefill(*a, 2);
    builder_.add_prefill(*b, 1);
  });
  const auto plan = next([&] {
    builder_.add_decode(*b);
    builder_.add_decode(*a);
  });
  ASSERT_EQ(plan->future_tokens.size(), 2u);
  EXPECT_EQ(plan->future_tokens[0].row, 0);
  EXPECT_EQ(plan->future_tokens[0].previous_sample, 1);
  EXPECT_EQ(plan->future_tokens[1].previous_sample, 0);
  EXPECT_EQ(plan->positions, (std::vector<std::int32_t>{1, 2}));
}

TEST_F(PlanBuilderTest, AKnownTokenIsWrittenIntoThePlan) {
  auto s = state({10, 11});
  next([&] { builder_.add_prefill(*s, 2); });
  s->tokens.push_back(77);
  s->pending_samples = 0;
  const auto plan = next([&] { builder_.add_decode(*s); });
  EXPECT_TRUE(plan->future_tokens.empty());
  EXPECT_EQ(plan->tokens, (std::vector<Token>{77}));
}

TEST_F(PlanBuilderTest, HistoryIsPromptThenOutputAndIsLeftOutWithoutPenalties) {
  core::SamplingParams penalised;
  penalised.presence_penalty = 1;
  auto s = state({10, 11}, penalised), plain = state({20});
  const auto prefill = next([&] {
    builder_.add_prefill(*plain, 1);
    builder_.add_prefill(*s, 2);
  });
  EXPECT_EQ(prefill->history, (std::vector<Token>{10, 11}));
  EXPECT_EQ(prefill->samples.at(0).history_tokens, 0);
  EXPECT_FALSE(prefill->samples.at(1).append_input_to_history);
  const auto decode = next([&] { builder_.add_decode(*s); });
  EXPECT_EQ(decode->history, (std::vector<Token>{10, 11}));  // the newest token is the row's own input
  EXPECT_TRUE(decode->samples.at(0).append_input_to_history);
  EXPECT_EQ(decode->samples.at(0).history_prompt_tokens, 2);
}

TEST_F(PlanBuilderTest, StopIdsAreBannedForTheFirstMinNewTokensOnly) {
  core::SamplingParams sampling;
  sampling.min_new_tokens = 2;
  sampling.stop_token_ids = {9, 5};
  auto s = state({10}, sampling);
  const auto first = next([&] { builder_.add_prefill(*s, 1); });
  EXPECT_EQ(first->banned, (std::vector<Token>{2, 5, 9}));
  EXPECT_EQ(next([&] { builder_.add_decode(*s); })->samples.at(0).banned_count, 3);
  s->tokens.push_back(30);
  --s->pending_samples;
  EXPECT_EQ(next([&] { builder_.add_decode(*s); })->samples.at(0).banned_count, 0);
}

// Allows the ids up to the number of tokens accepted so far.
class CountingGuide final : public core::TokenGuide {
 public:
  bool allowed(std::span<std::uint32_t> words) override {
    if (free_) return false;
    for (std::size_t i = 0; i < words.size() * 32; ++i) {
      if (i > accepted_) words[i / 32] &= ~(1u << i % 32);
    }
    return true;
  }
  Status accept(Token) override {
    ++accepted_;
    return {};
  }
  void rollback(std::int32_t tokens) override { accepted_ -= static_cast<std::size_t>(tokens); }
  bool free_ = false;

 private:
  std::size_t accepted_ = 0;
};

TEST_F(PlanBuilderTest, AGuidedRowCarriesTheMaskOfItsNextToken) {
  auto plain = state({10}), guided = state({20});
  const auto guide = std::make_shared<CountingGuide>();
  guided->request.guide = guide;
  const auto plan = next([&] {
    builder_.add_prefill(*plain, 1);
    builder_.add_prefill(*guided, 1);
  });
  EXPECT_EQ(plan->samples[0].mask_first, -1);
  EXPECT_EQ(plan->samples[1].mask_first, 0);
  EXPECT_EQ(plan->masks, (std::vector<std::uint32_t>{1, 0, 0}));  // 70 ids
}

TEST_F(PlanBuilderTest, AGuideThatAllowsEverythingCostsNoMask) {
  auto guided = state({20});
  const auto guide = std::make_shared<CountingGuide>();
  guide->free_ = true;
  guided->request.guide = guide;
  const auto plan = next([&] { builder_.add_prefill(*guided, 1); });
  EXPECT_EQ(plan->samples[0].mask_first, -1);
  EXPECT_TRUE(plan->masks.empty());
}

TEST_F(PlanBuilderTest, AGuidedRequestAsksForATokenOnlyOnceTheOneBeforeIsKnown) {
  auto guided = state({20});
  guided->request.guide = std::make_shared<CountingGuide>();
  guided->phase = Phase::kRunning;
  next([&] { builder_.add_prefill(*guided, 1); });
  EXPECT_FALSE(guided->wants_decode());
  guided->tokens.push_back(0);
  guided->pending_samples = 0;
  EXPECT_TRUE(guided->wants_decode());
}

TEST_F(PlanBuilderTest, BiasesStandBesideOneAnother) {
  auto a = state({10}, {.logit_bias = {{3, -100}, {5, 1.5f}}}), b = state({20}, {.logit_bias = {{3, 7}}});
  const auto plan = next([&] {
    builder_.add_prefill(*a, 1);
    builder_.add_prefill(*b, 1);
  });
  EXPECT_EQ(plan->bias_ids, (std::vector<Token>{3, 5, 3}));
  EXPECT_EQ(plan->bias_values, (std::vector<float>{-100, 1.5f, 7}));
  EXPECT_EQ(plan->samples[1].bias_first, 2);
  EXPECT_EQ(plan->samples[1].bias_count, 1);
}

}  // namespace
}  // namespace levada::sched
