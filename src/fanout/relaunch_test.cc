// The registry is opened again by a launch of its own: what failed in the one before, and what its dead servers may have
// written, is no reason to wait or to give up.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"
#include "fanout/sim/memory_rows.h"

namespace levada::fanout {
namespace {

class Relaunch : public testing::Test {
 protected:
  Relaunch() {
    relaunched_.servers_are_new = true;
    relaunched_.retry_failed = true;
  }
  void reopen(const RunConfig& config) {
    rows_.commit(driver_.machine().take_changes());
    auto opened = Machine::open(std::make_shared<RunConfig>(config), rows_.rows(), driver_.now_us);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    driver_.machine() = std::move(*opened);
    driver_.check();
  }
  // One capture whose call broke off: its server may still be writing.
  void break_one_off() {
    driver_.join(0);
    const auto order = driver_.claim().at(0);
    ASSERT_TRUE(driver_
                    .call(FailCaptureRequest{order.source_index, order.generation, order.nonce, "no answer", true,
                                             Written::kMaybe})
                    .ok());
    ASSERT_TRUE(driver_.call(DrainRequest{}).ok());
  }
  void fail(int consumer) {
    ASSERT_TRUE(driver_.done(consumer, driver_.call(FailConsumerRequest{driver_.next(consumer), "disk full"})).ok());
  }
  Driver driver_{[] {
    RunConfig config = small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12);
    config.servers_keep_journal = false;
    return config;
  }()};
  RunConfig relaunched_ = driver_.config();
  MemoryRows rows_;
};

TEST_F(Relaunch, WhatADeadServerMayHaveWrittenIsRemovedAtOnce) {
  break_one_off();
  reopen(relaunched_);
  EXPECT_EQ(driver_.remove_all(), 1u);
}

TEST_F(Relaunch, AsLongAsTheOldServerMayLiveItsWriterIsWaitedFor) {
  break_one_off();
  reopen(driver_.config());
  EXPECT_EQ(driver_.remove_all(), 0u);
  driver_.advance_us(driver_.config().times.capture_timeout_us);
  EXPECT_EQ(driver_.remove_all(), 1u);
}

TEST_F(Relaunch, AConsumerThatFailedGoesOnWhereItWas) {
  driver_.join_all();
  driver_.capture_all();
  ASSERT_EQ(driver_.acquire(0, 0, 1)->leases.size(), 1u);
  ASSERT_TRUE(driver_.ack(0).ok());
  fail(0);
  reopen(driver_.config());
  EXPECT_EQ(driver_.call(driver_.registration(0, "again")).error().code, ErrorCode::kConsumerFailed);
  reopen(relaunched_);
  const auto again = driver_.call(driver_.registration(0, "again"));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->cursor, 1);
}

TEST_F(Relaunch, ARunThatFailedByItsConsumersIsActiveAgain) {
  driver_.join_all();
  fail(0);
  fail(1);
  driver_.remove_all();
  ASSERT_EQ(driver_.state().run.status, RunStatus::kFailed);
  reopen(driver_.config());
  EXPECT_EQ(driver_.state().run.status, RunStatus::kFailed);
  reopen(relaunched_);
  EXPECT_EQ(driver_.state().run.status, RunStatus::kActive);
  EXPECT_EQ(driver_.state().run.fail_reason, "");
  driver_.join_all();
  driver_.capture_all();
  EXPECT_EQ(driver_.acquire(0, 0, 1)->leases.size(), 1u);
}

}  // namespace
}  // namespace levada::fanout
