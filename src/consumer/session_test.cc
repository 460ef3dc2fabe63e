// The consumer's side of lost replies, restarts and fences, against the registry's real state machine.
#include "consumer/session.h"

#include <gtest/gtest.h>

#include "consumer/test_samples.h"

namespace levada::consumer {
namespace {

using Fault = TestRegistry::Fault;

class SessionTest : public testing::Test {
 protected:
  SessionTest()
      : registry_(small_run(card_, {spec_}, 16), clock_),
        session_(registration(card_, spec_), {30'000'000, 60'000'000}, registry_, clock_, pause_) {}

  void capture(int claims = 4) {
    for (int i = 0; i < claims; ++i) capture_some(registry_, *arena_, card_, next_claim_++);
  }
  // The next `count` calls of the operation R lose their reply.
  template <class R>
  void lose_replies(int count) {
    registry_.fault = [count](const fanout::Request& request) mutable {
      return std::holds_alternative<R>(request) && count-- > 0 ? Fault::kReplyLost : Fault::kNone;
    };
  }

  ManualClock clock_;
  ClockPause pause_{clock_};
  const RunCard card_ = small_card(8);
  const fanout::ConsumerSpec spec_{"a", 2, 0, 5, 4, 4};
  std::unique_ptr<store::Arena> arena_ =
      *store::Arena::create({.bytes = 1 << 18, .max_objects = 256, .prefault = false}, clock_);
  TestRegistry registry_;
  Session session_;
  std::int64_t next_claim_ = 1;
};

TEST_F(SessionTest, TheRegistrysReplyIsTheSessions) {
  ASSERT_TRUE(session_.open().ok());
  EXPECT_EQ(session_.registration().total_samples, 8);
  EXPECT_EQ(session_.registration().cursor, 0);
}

TEST_F(SessionTest, OpenWaitsForARegistryThatIsNotUpYet) {
  registry_.is_down = true;
  pause_.on_wait = [&] {
    if (clock_.now_us() > 5'000'000) registry_.is_down = false;
  };
  EXPECT_TRUE(session_.open().ok());
  EXPECT_GE(clock_.now_us(), 5'000'000);
}

TEST_F(SessionTest, OpenGivesUpAfterItsTime) {
  registry_.is_down = true;
  EXPECT_EQ(session_.open().code(), StatusCode::kUnavailable);
  EXPECT_GE(clock_.now_us(), 60'000'000);
}

TEST_F(SessionTest, ADifferentPlanIsRefusedAtOnce) {
  fanout::RegisterRequest other = registration(card_, spec_);
  other.source_digest = "another";
  Session session(other, {}, registry_, clock_, pause_);
  const Status status = session.open();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("source_digest"), std::string::npos);
  EXPECT_EQ(clock_.now_us(), 0);
}

TEST_F(SessionTest, F20ALostAckReplyMovesTheCursorOnce) {
  ASSERT_TRUE(session_.open().ok());
  lose_replies<fanout::AdvanceRequest>(3);
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());
  EXPECT_EQ(registry_.cursor(0), 2);
  EXPECT_TRUE(session_.advance(2, 4, 2).ok());
  EXPECT_EQ(registry_.cursor(0), 4);
}

TEST_F(SessionTest, F12AnAckWhoseReplyARestartSwallowedIsRecognised) {
  ASSERT_TRUE(session_.open().ok());
  lose_replies<fanout::AdvanceRequest>(1);
  pause_.on_wait = [&] {
    registry_.restart();
    pause_.on_wait = nullptr;
  };
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());
  EXPECT_EQ(registry_.cursor(0), 2);
  EXPECT_EQ(session_.registration().cursor, 2);
  EXPECT_TRUE(session_.advance(2, 4, 2).ok());  // numbered from one again
}

TEST_F(SessionTest, F12AnAckWhoseReplyARestartSwallowedIsRecognisedWhenTheHeartbeatRegisteredFirst) {
  ASSERT_TRUE(session_.open().ok());
  lose_replies<fanout::AdvanceRequest>(1);
  pause_.on_wait = [&] {
    pause_.on_wait = nullptr;
    registry_.restart();
    std::int64_t sent_us = 0;
    EXPECT_TRUE(session_.heartbeat(true, {}, sent_us).ok());
  };
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());
  EXPECT_EQ(registry_.cursor(0), 2);
  EXPECT_TRUE(session_.advance(2, 4, 2).ok());
}

TEST_F(SessionTest, F12AnAckThatNeverArrivedIsMadeAfterTheRestart) {
  ASSERT_TRUE(session_.open().ok());
  registry_.restart();
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());
  EXPECT_EQ(registry_.cursor(0), 2);
}

TEST_F(SessionTest, F12ARegistryDownForLongIsWaitedForAndThenGivenUp) {
  ASSERT_TRUE(session_.open().ok());
  registry_.is_down = true;
  pause_.on_wait = [&] {
    if (clock_.now_us() > 20'000'000) registry_.is_down = false;
  };
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());
  registry_.is_down = true;
  pause_.on_wait = nullptr;
  EXPECT_EQ(session_.advance(2, 4, 2).code(), StatusCode::kUnavailable);
}

TEST_F(SessionTest, F17ASecondProcessWaitsAndIsRefusedWhileTheFirstLives) {
  ASSERT_TRUE(session_.open().ok());
  std::int64_t sent_us = 0;
  pause_.on_wait = [&] { EXPECT_TRUE(session_.heartbeat(true, {}, sent_us).ok()); };
  Session second(registration(card_, spec_, "another process"), {}, registry_, clock_, pause_);
  EXPECT_EQ(second.open().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());
}

TEST_F(SessionTest, F17ASecondProcessGetsInOnceTheFirstHasExpired) {
  ASSERT_TRUE(session_.open().ok());
  Session second(registration(card_, spec_, "another process"), {}, registry_, clock_, pause_);
  EXPECT_TRUE(second.open().ok());
  EXPECT_TRUE(second.advance(0, 2, 1).ok());
}

TEST_F(SessionTest, F18AZombieAfterATakeoverNeverGetsBackIn) {
  ASSERT_TRUE(session_.open().ok());
  fanout::RegisterRequest request = registration(card_, spec_, "another process");
  request.takeover = true;
  Session second(request, {}, registry_, clock_, pause_);
  ASSERT_TRUE(second.open().ok());
  EXPECT_EQ(session_.advance(0, 2, 1).code(), StatusCode::kAlreadyExists);
  std::int64_t sent_us = 0;
  EXPECT_FALSE(session_.acquire(0, 1, 0, sent_us).ok());
  EXPECT_EQ(registry_.cursor(0), 0);
}

TEST_F(SessionTest, F21AnAckOutOfTurnMovesNothing) {
  ASSERT_TRUE(session_.open().ok());
  EXPECT_EQ(session_.advance(2, 4, 2).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(registry_.cursor(0), 0);
  EXPECT_TRUE(session_.advance(0, 2, 1).ok());  // the refused call used up no number
}

TEST_F(SessionTest, ALeaseAcquiredAgainKeepsItsToken) {
  ASSERT_TRUE(session_.open().ok());
  capture();
  std::int64_t sent_us = 0;
  const auto first = session_.acquire(0, 2, 0, sent_us);
  ASSERT_TRUE(first.ok());
  ASSERT_EQ(first->leases.size(), 2u);
  lose_replies<fanout::AcquireRequest>(1);
  const auto again = session_.acquire(0, 2, 0, sent_us);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->leases[0].token, first->leases[0].token);
}

TEST_F(SessionTest, ACompletionWhoseReplyARestartSwallowedIsRecognised) {
  ASSERT_TRUE(session_.open().ok());
  for (std::int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(session_.advance(2 * step - 2, 2 * step, step).ok());
  lose_replies<fanout::CompleteConsumerRequest>(1);
  pause_.on_wait = [&] { registry_.restart(); };
  const auto reply = session_.complete(4, 8, false);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->skipped_tail, 0);
}

TEST_F(SessionTest, ARefusalSaysThatTheConsumerCompletedInAnEarlierLife) {
  ASSERT_TRUE(session_.open().ok());
  EXPECT_FALSE(session_.completed_before());
  ASSERT_TRUE(session_.complete(0, 0, true).ok());
  Session second(registration(card_, spec_, "another process"), {}, registry_, clock_, pause_);
  EXPECT_EQ(second.open().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(second.completed_before());
}

TEST_F(SessionTest, AStopEndsEveryWait) {
  ASSERT_TRUE(session_.open().ok());
  registry_.is_down = true;
  pause_.on_wait = [&] { pause_.stop(); };
  EXPECT_EQ(session_.advance(0, 2, 1).code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace levada::consumer
