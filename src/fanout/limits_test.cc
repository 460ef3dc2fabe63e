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

// Fails position p for good.
void refuse(Driver& driver, const CaptureOrder& order) {
  const FailCaptureRequest refusal{order.source_index, order.generation, order.nonce, "too long", false, Written::kNo};
  ASSERT_EQ(driver.call(refusal)->state, EntryState::kFailed);
}

class SkipPolicy : public testing::Test {
 protected:
  static RunConfig skipping(std::int64_t most) {
    RunConfig config = small_config({spec(2, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12);
    config.skip_failed = most;
    return config;
  }
};

TEST_F(SkipPolicy, F09AFailedPositionIsToldInItsPlaceAndIsNeverTriedAgain) {
  Driver driver(skipping(1));
  driver.join_all();
  for (const CaptureOrder& order : driver.claim(3)) {
    if (order.source_index == 1) {
      refuse(driver, order);
    } else {
      driver.finish(order);
    }
  }
  const auto reply = driver.acquire(0, 0, 3);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  ASSERT_EQ(reply->leases.size(), 2u);
  EXPECT_EQ(reply->leases[0].source_index, 0);
  EXPECT_EQ(reply->skipped, std::vector<std::int64_t>{1});
  EXPECT_EQ(reply->leases[1].source_index, 2);
  ASSERT_TRUE(driver.ack(0).ok()) << "the quantum counts as whole";
  // To a consumer that starts anew too: every consumer sees the same sequence.
  auto request = driver.registration(1, "started again");
  request.takeover = true;
  const auto session = driver.call(request);
  driver.sessions[1] = {session->session_id, session->session_epoch, 0};
  ASSERT_TRUE(driver.ack(1).ok());
  EXPECT_EQ(driver.acquire(1, 1, 1)->skipped, std::vector<std::int64_t>{1});
  EXPECT_EQ(driver.entry(1), EntryState::kFailed);
  EXPECT_EQ(driver.state().count(Count::kSkippedSamples), 1);
}

TEST_F(SkipPolicy, F09WhoWaitsForAPositionIsToldWhenItFails) {
  Driver driver(skipping(1));
  driver.join(1);
  const AcquireRequest waiting{driver.key(1), 0, 1, 1000};
  EXPECT_TRUE(Machine::waits(waiting, Reply(*driver.call(waiting))));
  refuse(driver, driver.claim().at(0));
  EXPECT_FALSE(Machine::waits(waiting, Reply(*driver.call(waiting))));
}

TEST_F(SkipPolicy, F09OneMoreThanMayBeSkippedFailsTheRunNamingEachSampleAndCause) {
  Driver driver(skipping(1));
  driver.join_all();
  const auto orders = driver.claim(3);
  refuse(driver, orders[0]);
  EXPECT_EQ(driver.state().run.status, RunStatus::kActive);
  refuse(driver, orders[1]);
  EXPECT_EQ(driver.state().run.status, RunStatus::kFailed);
  EXPECT_EQ(driver.state().run.fail_reason,
            "2 samples cannot be captured, skip_failed is 1; run:p0: too long; run:p1: too long");
  EXPECT_EQ(driver.acquire(0, 0, 1).error().code, ErrorCode::kRunFailed);
  driver.finish(orders[2]);  // what was under way comes to its end, and goes
  driver.remove_all();
  EXPECT_TRUE(driver.call(RemovalsRequest{1, 0})->drained);
}

}  // namespace
}  // namespace levada::fanout
