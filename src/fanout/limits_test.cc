// Limits, pressure and the policy of failing consumers: rows of the fault table (spec §7.2), the number in the name.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"

namespace levada::fanout {
namespace {

// Limits for three: a leader takes what a laggard has not reached, within the limits.
TEST(FanoutPressure, F13ASlowConsumersPositionsAreCapturedAgain) {
  Driver driver(small_config({spec(1, 1, 2, 2), spec(1, 1, 2, 2)}, 5, 2));
  driver.join_all();
  for (int i = 0; i < 5; ++i) {
    driver.remove_all();
    driver.capture_all();
    ASSERT_EQ(driver.acquire(0, i, 1)->leases.size(), 1u) << i;
    ASSERT_TRUE(driver.ack(0).ok());
  }
  ASSERT_TRUE(driver.complete(0).ok());
  for (int i = 0; i < 5; ++i) {
    driver.remove_all();
    driver.capture_all();
    ASSERT_EQ(driver.acquire(1, i, 1)->leases.size(), 1u) << i;
    ASSERT_TRUE(driver.ack(1).ok());
  }
  ASSERT_TRUE(driver.complete(1).ok());
  driver.remove_all();
  EXPECT_GT(driver.state().count(Count::kRecaptures), 0);
  EXPECT_LE(driver.state().count(Count::kPeakLiveRefs), 2);
  EXPECT_EQ(driver.state().run.status, RunStatus::kCompleted);
}

TEST(FanoutLimits, F41LimitsThatAreTooSmallAreRefusedWithWhatTheyNeed) {
  auto config = small_config({spec(2, 3, 2, 3), spec(3, 4, 2, 3)}, 6, 5);
  EXPECT_TRUE(check(config).ok());
  config.max_live_refs = 4;
  EXPECT_EQ(check(config).field(), "max_live_refs");
  EXPECT_NE(check(config).message().find("at least 5"), std::string::npos);
  config.max_live_refs = 5;
  config.max_live_bytes = 49;
  EXPECT_EQ(check(config).field(), "max_live_bytes");
  config.max_live_bytes = 50;
  EXPECT_TRUE(check(config).ok());
  config.capture_reservation_bytes = 9;
  EXPECT_EQ(check(config).field(), "capture_reservation_bytes");
  config = small_config({spec(3, 1, 1, 3)}, 6, 5);
  EXPECT_EQ(check(config).field(), "consumers[a].window_lookahead");
  config = small_config({spec(3, 3, 1, 2)}, 6, 5);
  EXPECT_EQ(check(config).field(), "consumers[a].max_outstanding_per_consumer");
  config = small_config({spec(1, 1, 3, 1)}, 6, 5);
  EXPECT_EQ(check(config).field(), "consumers[a].max_prefetch_per_consumer");
}

//   positions   0 1 2 3 4 5
//   a at 0      Q w w w
//   b at 2          Q w w w      3 slots: 0, 2, 3 ready; a moves to 1, which is not live
TEST(FanoutPressure, F47OnlyWhatNoNextQuantumNeedsIsShedAndItIsNotFetchedBack) {
  Driver driver(small_config({spec(1, 3, 4, 2), spec(1, 3, 4, 2)}, 6, 3));
  driver.join_all();
  driver.capture_all();  // 0 1 2
  ASSERT_TRUE(driver.ack(1).ok());
  ASSERT_TRUE(driver.ack(1).ok());
  EXPECT_EQ(driver.entry(0), EntryState::kReady) << "a's next quantum";
  EXPECT_EQ(driver.entry(2), EntryState::kReady) << "b's next quantum";
  ASSERT_TRUE(driver.ack(1).ok());  // b at 3: needed, not live, nothing free
  EXPECT_EQ(driver.entry(0), EntryState::kReady);
  EXPECT_EQ(driver.entry(2), EntryState::kEvicting) << "the farthest ahead of what nobody needs";
  driver.remove_all();
  EXPECT_EQ(driver.capture_all(), std::vector<std::int64_t>{3});
  EXPECT_EQ(driver.entry(2), EntryState::kAbsent) << "no ping-pong: suppressed until a needs it";
  EXPECT_EQ(driver.state().count(Count::kShed), 1);
}

TEST(FanoutPolicy, F48AbortAllEndsTheRunWithTheReason) {
  auto config = small_config({spec(1, 3, 2, 3), spec(1, 3, 2, 3)}, 6, 6);
  config.abort_on_consumer_failure = true;
  Driver driver(config);
  driver.join_all();
  driver.capture_all();
  ASSERT_TRUE(driver.call(FailConsumerRequest{driver.next(0), "out of memory"}).ok());
  const auto told = driver.acquire(1, 0, 1);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(told.error().code, ErrorCode::kRunFailed);
  EXPECT_NE(told.error().message.find("out of memory"), std::string::npos);
  EXPECT_TRUE(driver.call(ClaimRequest{"w", "s", 99, 1, 0})->drain);
  // X4: the reason is there before the sweep; the sweep still ends with nothing left.
  driver.remove_all();
  EXPECT_TRUE(driver.call(RemovalsRequest{1, 0})->drained);
  EXPECT_EQ(driver.state().run.status, RunStatus::kFailed);
}

}  // namespace
}  // namespace levada::fanout
