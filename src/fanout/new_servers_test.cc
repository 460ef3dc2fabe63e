// The registry is opened again after every capture server of its earlier life has ended (fault 10 with fault 3).
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"
#include "fanout/sim/memory_rows.h"

namespace levada::fanout {
namespace {

class NewServers : public testing::Test {
 protected:
  void restart(bool servers_are_new) {
    rows_.commit(driver_.machine().take_changes());
    auto config = std::make_shared<RunConfig>(driver_.config());
    config->servers_are_new = servers_are_new;
    auto opened = Machine::open(config, rows_.rows(), driver_.now_us);
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
  Driver driver_{[] {
    RunConfig config = small_config({spec(1, 3, 4, 3)}, 6, 12);
    return config;
  }()};
  MemoryRows rows_;
};

TEST_F(NewServers, WhatADeadServerMayHaveWrittenIsRemovedAtOnce) {
  break_one_off();
  restart(true);
  EXPECT_EQ(driver_.remove_all(), 1u);
}

TEST_F(NewServers, AsLongAsTheOldServerMayLiveItsWriterIsWaitedFor) {
  break_one_off();
  restart(false);
  EXPECT_EQ(driver_.remove_all(), 0u);
  driver_.advance_us(driver_.config().times.capture_timeout_us);
  EXPECT_EQ(driver_.remove_all(), 1u);
}

}  // namespace
}  // namespace levada::fanout
