#include "up/flywheel.h"

#include <gtest/gtest.h>

namespace levada::up {
namespace {

Candidate measured(const char* id, double accept_length, double tokens_per_s) {
  return {id, std::string("/drafts/") + id, {24, accept_length, 0.1, tokens_per_s}, {}};
}

TEST(FlywheelPromotion, TheLongestAcceptedRunsWin) {
  const std::vector<Candidate> candidates{measured("b4", 1.5, 90), measured("b6", 1.7, 80), measured("b8", 1.6, 95)};
  const Candidate* best = best_of(candidates, measured("ngram", 1.1, 100), {});
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->id, "b6");
}

TEST(FlywheelPromotion, AGainThatIsTooSmallIsNone) {
  recipe::FlywheelSection rules;
  rules.min_gain = 0.2;
  const Candidate served = measured("old", 1.5, 100);
  EXPECT_EQ(best_of({measured("b4", 1.65, 200)}, served, rules), nullptr);
  EXPECT_NE(best_of({measured("b4", 1.75, 200)}, served, rules), nullptr);
  EXPECT_EQ(best_of({}, served, rules), nullptr);
}

TEST(FlywheelPromotion, WhoIsTooSlowForTheRuleIsPassedOver) {
  recipe::FlywheelSection rules;
  rules.min_speed = 0.95;
  const std::vector<Candidate> candidates{measured("b4", 1.5, 96), measured("b6", 1.7, 94)};
  const Candidate* best = best_of(candidates, measured("ngram", 1.1, 100), rules);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->id, "b4");
  rules.min_speed = 1;
  EXPECT_EQ(best_of(candidates, measured("ngram", 1.1, 100), rules), nullptr);
}

}  // namespace
}  // namespace levada::up
