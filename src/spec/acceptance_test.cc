#include "spec/acceptance.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/step_plan.h"
#include "files/tensor_source.h"
#include "support/instrumented.h"
#include "support/vectors.h"

namespace levada::spec {
namespace {

using core::Token;

// The oracle's 64 rows: five rows of a target over twelve tokens, four drafts each, as point masses and drawn from q.
struct Golden {
  static constexpr std::int64_t kRows = 64, kSteps = 5, kDrafts = 4, kVocabulary = 12;

  template <class T>
  std::vector<T> read(const std::string& name) const {
    static_assert(sizeof(T) == 8);
    const files::TensorInfo* info = source->find(name);
    EXPECT_NE(info, nullptr) << name;
    std::vector<T> values(static_cast<std::size_t>(info->elements()));
    std::memcpy(values.data(), info->bytes.data(), values.size() * 8);  // float64 is kept as the int64 of its bits
    return values;
  }
  // Drafts of one row; column 0 of the file is the token before them.
  std::vector<Token> drafts(const std::vector<std::int64_t>& candidates, std::int64_t row) const {
    const auto first = candidates.begin() + row * kSteps + 1;
    return std::vector<Token>(first, first + kDrafts);
  }
  Verification row(std::int64_t row, std::span<const Token> drafts) const {
    return {drafts, std::span(p).subspan(row * kSteps * kVocabulary, kSteps * kVocabulary),
            std::span(coins).subspan(row * kSteps, kSteps), last[static_cast<std::size_t>(row)], kVocabulary};
  }
  std::span<const double> draft(std::int64_t row) const {
    return std::span(q).subspan(row * kDrafts * kVocabulary, kDrafts * kVocabulary);
  }
  void expect(const std::string& rule, std::int64_t row, const Verdict& verdict) const {
    const auto at = static_cast<std::size_t>(row);
    EXPECT_EQ(verdict.accepted, read<std::int64_t>("out." + rule + ".accepted")[at]) << rule << " " << row;
    EXPECT_EQ(verdict.next, read<std::int64_t>("out." + rule + ".bonus")[at]) << rule << " " << row;
  }

  std::unique_ptr<files::TensorSource> source =
      std::move(files::open_safetensors(test::vectors() / "dflash/verify.safetensors")).value();
  std::vector<double> p = read<double>("in.p"), q = read<double>("in.q"), coins = read<double>("in.coins"),
                      last = read<double>("in.final_coin");
  std::vector<std::int64_t> greedy = read<std::int64_t>("in.greedy_cand"),
                            drawn = read<std::int64_t>("in.sampled_cand"),
                            argmax = read<std::int64_t>("in.target_argmax");
};

TEST(Acceptance, EveryRuleAgreesWithTheOracleOnEveryRow) {
  const Golden golden;
  for (std::int64_t row = 0; row < Golden::kRows; ++row) {
    const std::vector<Token> greedy = golden.drafts(golden.greedy, row), drawn = golden.drafts(golden.drawn, row);
    const auto first = golden.argmax.begin() + row * Golden::kSteps;
    const std::vector<Token> argmax(first, first + Golden::kSteps);
    golden.expect("greedy", row, verify_greedy(greedy, argmax));
    golden.expect("point_mass", row, verify_point_mass(golden.row(row, greedy)));
    golden.expect("pq", row, verify_tokenwise(golden.row(row, drawn), golden.draft(row)));
    golden.expect("block", row, verify_block(golden.row(row, drawn), golden.draft(row)));
  }
}

// The rule in service is the greedy one where rows are sampled greedily.
TEST(Acceptance, GreedyAcceptsTheRunThatServiceAccepts) {
  const Golden golden;
  for (std::int64_t row = 0; row < Golden::kRows; ++row) {
    const std::vector<Token> drafts = golden.drafts(golden.greedy, row);
    const auto first = golden.argmax.begin() + row * Golden::kSteps;
    const std::vector<Token> sampled(first, first + Golden::kSteps);
    EXPECT_EQ(verify_greedy(drafts, sampled).accepted, core::accepted_drafts(sampled, drafts));
  }
}

TEST(Acceptance, WithoutDraftsTheNextTokenIsTheTargets) {
  const std::vector<double> target{0.25, 0.5, 0.25}, coins{0.9};
  const Verification v{{}, target, coins, 0.5, 3};
  EXPECT_EQ(verify_greedy({}, std::vector<Token>{2}), (Verdict{0, 2}));
  EXPECT_EQ(verify_point_mass(v), (Verdict{0, 1}));
  EXPECT_EQ(verify_tokenwise(v, {}), (Verdict{0, 1}));
  EXPECT_EQ(verify_block(v, {}), (Verdict{0, 1}));
}

TEST(Acceptance, ADraftTheTargetExcludesIsNeverKeptAndATokenWithoutMassNeverDrawn) {
  const std::vector<double> target{0, 1, 0, 0, 0, 1}, draft{1, 0, 0}, coins{0, 0};
  const std::vector<Token> drafts{0};
  for (const double last : {0.0, 0.5, std::nextafter(1.0, 0.0)}) {
    const Verification v{drafts, target, coins, last, 3};
    EXPECT_EQ(verify_point_mass(v), (Verdict{0, 1}));
    EXPECT_EQ(verify_tokenwise(v, draft), (Verdict{0, 1}));
    EXPECT_EQ(verify_block(v, draft), (Verdict{0, 1}));
  }
}

TEST(Acceptance, DraftsDrawnFromTheTargetItselfAreAllKept) {
  const std::vector<double> target{0.5, 0.5, 0.5, 0.5, 0.25, 0.75}, draft{0.5, 0.5, 0.5, 0.5};
  const std::vector<double> coins(3, std::nextafter(1.0, 0.0));
  const std::vector<Token> drafts{1, 0};
  const Verification v{drafts, target, coins, 0.3, 2};
  EXPECT_EQ(verify_tokenwise(v, draft), (Verdict{2, 1}));
  EXPECT_EQ(verify_block(v, draft), (Verdict{2, 1}));
}

// Trials of one rule on the first row of the oracle's distributions: what came first, what came first and second, how many
// drafts were kept.
struct Trials {
  static constexpr int kTrials = test::kInstrumented ? 20'000 : 60'000;
  std::vector<double> first = std::vector<double>(12), pairs = std::vector<double>(144);
  double accepted = 0;

  void add(const Verdict& verdict, std::span<const Token> drafts, Token plain_second) {
    const Token one = verdict.accepted > 0 ? drafts[0] : verdict.next;
    const Token two = verdict.accepted == 0 ? plain_second : verdict.accepted > 1 ? drafts[1] : verdict.next;
    first[static_cast<std::size_t>(one)] += 1.0 / kTrials;
    pairs[static_cast<std::size_t>(one * 12 + two)] += 1.0 / kTrials;
    accepted += static_cast<double>(verdict.accepted) / kTrials;
  }
};

double total_variation(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / 2;
}

Token draw(std::span<const double> p, double coin) {
  for (std::size_t i = 0; i + 1 < p.size(); ++i)
    if ((coin -= p[i]) < 0) return static_cast<Token>(i);
  return static_cast<Token>(p.size() - 1);
}

struct Distribution : testing::Test {
  Distribution() {
    std::mt19937_64 random(11);
    std::uniform_real_distribution<double> uniform;
    std::array<double, Golden::kSteps> coins{};
    for (int trial = 0; trial < Trials::kTrials; ++trial) {
      for (double& coin : coins) coin = uniform(random);
      std::vector<Token> drawn;
      for (std::int64_t i = 0; i < Golden::kDrafts; ++i)
        drawn.push_back(draw(std::span(golden.q).subspan(i * 12, 12), uniform(random)));
      const double last = uniform(random);
      const Token second = draw(std::span(golden.p).subspan(12, 12), uniform(random));
      const auto target = std::span(golden.p).first(Golden::kSteps * 12);
      const Verification greedy{greedy_drafts, target, coins, last, 12}, sampled{drawn, target, coins, last, 12};
      point.add(verify_point_mass(greedy), greedy_drafts, second);
      loose.add(verify_point_mass(greedy, 1, 0.5), greedy_drafts, second);
      tokenwise.add(verify_tokenwise(sampled, golden.draft(0)), drawn, second);
      block.add(verify_block(sampled, golden.draft(0)), drawn, second);
    }
  }
  std::vector<double> pairs() const {
    std::vector<double> joint;
    for (int one = 0; one < 12; ++one)
      for (int two = 0; two < 12; ++two)
        joint.push_back(golden.p[static_cast<std::size_t>(one)] * golden.p[12 + static_cast<std::size_t>(two)]);
    return joint;
  }

  const Golden golden;
  const std::vector<Token> greedy_drafts = golden.drafts(golden.greedy, 0);
  Trials point, loose, tokenwise, block;
};

// Bounds: the mean distance that k cells of N trials have by noise alone is at most sqrt((k - 1) / N) / 2, which is 0.0068
// for 12 cells and 0.0245 for 144 at N = 60,000. It exceeds that by t with probability exp(-2 N t^2) at most (McDiarmid), by
// 0.0092 with 4e-5.
TEST_F(Distribution, EveryRuleKeepsTheTargetsFirstTokenAndTheFirstTwo) {
  const double scale = std::sqrt(60'000.0 / Trials::kTrials);
  const auto p = std::span(golden.p).first(12);
  int number = 0;
  for (const Trials* rule : {&point, &tokenwise, &block}) {
    const double one = total_variation(rule->first, p), two = total_variation(rule->pairs, pairs());
    EXPECT_LE(one, 0.012 * scale) << number;
    EXPECT_LE(two, (0.0245 + 0.0092) * scale) << number;
    std::printf("rule %d: first token %.4f, first two %.4f, accepted %.3f\n", number++, one, two, rule->accepted);
  }
}

TEST_F(Distribution, AThresholdBelowOneAcceptsMoreAndIsSeenToLoseTheDistribution) {
  EXPECT_GT(loose.accepted, point.accepted);
  EXPECT_GT(total_variation(loose.first, std::span(golden.p).first(12)), 0.05);
}

TEST_F(Distribution, ProbabilitiesHelpAndTheBlockHelpsMore) {
  EXPECT_LT(point.accepted, tokenwise.accepted);
  EXPECT_LT(tokenwise.accepted, block.accepted);
}

}  // namespace
}  // namespace levada::spec
