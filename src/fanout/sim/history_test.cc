#include "fanout/sim/history.h"

#include <gtest/gtest.h>

#include "support/instrumented.h"

namespace levada::fanout::sim {
namespace {

// Spec T16: ten thousand seeded fault schedules, every invariant after every step. Under sanitizers a few.
constexpr std::uint64_t kHistories = test::kInstrumented ? 100 : 10'000;

TEST(FanoutHistories, EveryFaultScheduleEndsWithNothingLostAndNothingLeft) {
  std::int64_t steps = 0;
  std::int64_t restarts = 0;
  std::int64_t recaptures = 0;
  for (std::uint64_t seed = 1; seed <= kHistories; ++seed) {
    const HistoryResult result = run_history(seed, 150);
    steps += result.steps;
    restarts += result.restarts;
    recaptures += result.recaptures;
    ASSERT_EQ(result.problems, std::vector<std::string>()) << "seed " << seed;
  }
  std::printf("%lld steps, %lld restarts, %lld recaptures\n", static_cast<long long>(steps),
              static_cast<long long>(restarts), static_cast<long long>(recaptures));
  EXPECT_GT(restarts, static_cast<std::int64_t>(kHistories) / 4);
  EXPECT_GT(recaptures, static_cast<std::int64_t>(kHistories) / 4);
}

}  // namespace
}  // namespace levada::fanout::sim
