// Faults of consumers: sessions, leases, acknowledgements.
// Rows of the fault table (spec §7.2), the number in the test's name; those of the store, the arena and the processes are
// tests of their rooms.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"

namespace levada::fanout {
namespace {

class ConsumerFaults : public testing::Test {
 protected:
  // Two consumers, one sample a step, everything fits.
  Driver driver_{small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12)};
};

TEST_F(ConsumerFaults, F14ADeadConsumerPinsItsLeasesForTheirTtlAndItsNextQuantumForTheGrace) {
  driver_.join_all();
  driver_.capture_all();
  ASSERT_EQ(driver_.acquire(0, 0, 3)->leases.size(), 3u);
  ASSERT_EQ(driver_.acquire(1, 0, 1)->leases.size(), 1u);
  ASSERT_TRUE(driver_.ack(1).ok());
  // b lives on, a is silent.
  const auto beat_b = [&] { return driver_.call(HeartbeatRequest{driver_.key(1), true, {}}).ok(); };
  for (int i = 0; i < 3; ++i) {
    driver_.advance_us(10 * kSecond);
    ASSERT_TRUE(beat_b());
  }
  EXPECT_EQ(driver_.consumer(0), ConsumerState::kDetached);
  EXPECT_TRUE(driver_.state().consumers[0].leases.empty());
  EXPECT_EQ(driver_.entry(0), EntryState::kReady) << "its next quantum stays";
  for (int i = 0; i < 30; ++i) {
    driver_.advance_us(10 * kSecond);
    ASSERT_TRUE(beat_b());
  }
  EXPECT_EQ(driver_.consumer(0), ConsumerState::kSuspended);
  EXPECT_EQ(driver_.entry(0), EntryState::kEvicting);
  driver_.remove_all();
  // And it may come back.
  driver_.join(0);
  EXPECT_EQ(driver_.entry(0), EntryState::kQueued);
  EXPECT_EQ(driver_.cursor(0), 0);
}

TEST_F(ConsumerFaults, F15ACrashBeforeTheAckReplaysFromTheCheckpoint) {
  driver_.join(0);
  driver_.capture_all();
  ASSERT_EQ(driver_.acquire(0, 0, 1)->leases.size(), 1u);
  // Trained, not acknowledged, killed; another process takes over.
  auto request = driver_.registration(0, "second process");
  EXPECT_EQ(driver_.call(request).error().code, ErrorCode::kDuplicateConsumer);
  request.takeover = true;
  const auto session = driver_.call(request);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->cursor, 0);
  driver_.sessions[0] = {session->session_id, session->session_epoch, 0};
  EXPECT_EQ(driver_.acquire(0, 0, 1)->leases.size(), 1u) << "position 0 is replayed";
}

TEST_F(ConsumerFaults, F16ACrashAfterTheAckRewindsToARecordedCheckpoint) {
  driver_.join(0);
  for (int i = 0; i < 3; ++i) {
    driver_.capture_all();
    ASSERT_TRUE(driver_.ack(0).ok());
    driver_.remove_all();
    if (i == 0) {
      ASSERT_TRUE(driver_.done(0, driver_.call(CheckpointRequest{driver_.next(0), 1, 1, "file:///1"})).ok());
    }
  }
  // Not a recorded one; a recorded one.
  EXPECT_EQ(driver_.call(ResumeRequest{driver_.next(0), 2, 2}).error().code, ErrorCode::kCursorConflict);
  EXPECT_EQ(driver_.call(ResumeRequest{driver_.next(0), 0, 1}).error().code, ErrorCode::kCursorConflict);
  const auto resumed = driver_.done(0, driver_.call(ResumeRequest{driver_.next(0), 1, 1}));
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(driver_.cursor(0), 1);
  driver_.capture_all();
  const auto again = driver_.acquire(0, 1, 1);
  ASSERT_EQ(again->leases.size(), 1u);
  // Step 0 is always recorded.
  EXPECT_TRUE(driver_.done(0, driver_.call(ResumeRequest{driver_.next(0), 0, 0})).ok());
  EXPECT_EQ(driver_.cursor(0), 0);
}

TEST_F(ConsumerFaults, F17NeverTwoLiveSessionsOfOneConsumer) {
  driver_.join(0);
  const auto first = driver_.sessions[0];
  EXPECT_EQ(driver_.call(driver_.registration(0, "other")).error().code, ErrorCode::kDuplicateConsumer);
  // The same process again (its reply was lost) gets the same session.
  EXPECT_EQ(driver_.call(driver_.registration(0))->session_id, first.session_id);
  driver_.advance_us(driver_.config().times.session_ttl_us);
  EXPECT_TRUE(driver_.call(driver_.registration(0, "other")).ok());
  EXPECT_EQ(driver_.acquire(0, 0, 1).error().code, ErrorCode::kSessionFenced);
}

TEST_F(ConsumerFaults, F18EveryCallOfAZombieIsFenced) {
  driver_.join(0);
  driver_.capture_all();
  const auto token = driver_.acquire(0, 0, 1)->leases[0].token;
  const auto old = driver_.next(0);
  auto request = driver_.registration(0, "successor");
  request.takeover = true;
  ASSERT_TRUE(driver_.call(request).ok());
  const SessionKey key{old.session_id, old.session_epoch};
  EXPECT_EQ(driver_.call(AcquireRequest{key, 0, 1, 0}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(HeartbeatRequest{key, true, {token}}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(AdvanceRequest{old, 0, 1, 1, true}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(FailConsumerRequest{old, "x"}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(ResumeRequest{old, 0, 0}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(CheckpointRequest{old, 0, 0, ""}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(CompleteConsumerRequest{old, 0, 0, true}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(AbandonRequest{old, {token}, ""}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.call(ReportLostRequest{old, 0, 1, LossReason::kIo}).error().code, ErrorCode::kSessionFenced);
  EXPECT_EQ(driver_.cursor(0), 0);
}

TEST_F(ConsumerFaults, F19AnExpiredLeaseIsLostAndAcquiredAnew) {
  driver_.join(0);
  driver_.capture_all();
  const auto first = driver_.acquire(0, 0, 1)->leases[0];
  for (int i = 0; i < 3; ++i) {  // the session lives, the lease is not renewed
    driver_.advance_us(10 * kSecond);
    ASSERT_TRUE(driver_.call(HeartbeatRequest{driver_.key(0), true, {}}).ok());
  }
  EXPECT_EQ(driver_.call(HeartbeatRequest{driver_.key(0), true, {first.token}})->lost,
            std::vector<std::string>{first.token});
  const auto second = driver_.acquire(0, 0, 1)->leases[0];
  EXPECT_NE(second.token, first.token);
  EXPECT_EQ(second.generation, first.generation) << "the bytes are still there: its window keeps them";
}

TEST_F(ConsumerFaults, F20AnAckWhoseReplyWasLostMovesTheCursorOnce) {
  driver_.join(0);
  driver_.capture_all();
  const auto ack = driver_.ack_request(0);
  EXPECT_EQ(driver_.call(ack)->cursor, 1);
  EXPECT_EQ(driver_.call(ack)->cursor, 1);
  EXPECT_EQ(driver_.cursor(0), 1);
  auto other = ack;
  other.new_cursor = 2;
  EXPECT_EQ(driver_.call(other).error().code, ErrorCode::kOpConflict);
  other.key.op = 3;
  EXPECT_EQ(driver_.call(other).error().code, ErrorCode::kOpGap);
  driver_.sessions[0].op = 1;
  ASSERT_TRUE(driver_.ack(0).ok());
  EXPECT_EQ(driver_.call(ack).error().code, ErrorCode::kOpStale);
  EXPECT_EQ(driver_.cursor(0), 2);
}

TEST_F(ConsumerFaults, F21AnAckOutOfOrderMovesNothing) {
  driver_.join(0);
  const auto code = [&](std::int64_t from, std::int64_t to, std::int64_t step) {
    return driver_.call(AdvanceRequest{driver_.next(0), from, to, step, true}).error().code;
  };
  EXPECT_EQ(code(1, 2, 2), ErrorCode::kCursorConflict);
  EXPECT_EQ(code(0, 2, 1), ErrorCode::kCursorConflict);
  EXPECT_EQ(code(0, 0, 0), ErrorCode::kCursorConflict);
  EXPECT_EQ(code(0, -1, -1), ErrorCode::kCursorConflict);
  EXPECT_EQ(code(0, 5, 5), ErrorCode::kOutOfWindow);
  EXPECT_EQ(driver_.cursor(0), 0);
  EXPECT_TRUE(driver_.ack(0).ok()) << "a refused op does not use its number up";
}

TEST_F(ConsumerFaults, F48OneFailedConsumerDoesNotStopTheOthers) {
  driver_.join_all();
  ASSERT_TRUE(driver_.done(0, driver_.call(FailConsumerRequest{driver_.next(0), "out of memory"})).ok());
  const auto refused = driver_.call(driver_.registration(0, "started again"));
  EXPECT_EQ(refused.error().code, ErrorCode::kConsumerFailed);
  EXPECT_NE(refused.error().message.find("out of memory"), std::string::npos) << "it has ended for good, and why";
  for (int i = 0; i < 6; ++i) {
    driver_.capture_all();
    ASSERT_EQ(driver_.acquire(1, i, 1)->leases.size(), 1u);
    ASSERT_TRUE(driver_.ack(1).ok());
    driver_.remove_all();
  }
  ASSERT_TRUE(driver_.complete(1).ok());
  EXPECT_EQ(driver_.acquire(1, 6, 1).error().code, ErrorCode::kConsumerCompleted);
  EXPECT_EQ(driver_.call(driver_.registration(1, "started again")).error().code, ErrorCode::kConsumerCompleted);
  driver_.remove_all();
  EXPECT_EQ(driver_.state().run.status, RunStatus::kCompletedWithFailures);
}

}  // namespace
}  // namespace levada::fanout
