// Faults of the registry itself: it dies and is opened again.
// Rows of the fault table (spec §7.2), the number in the test's name; those of the store, the arena and the processes are
// tests of their rooms.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"
#include "fanout/sim/memory_rows.h"

namespace levada::fanout {
namespace {

class RestartFaults : public testing::Test {
 protected:
  RestartFaults() : RestartFaults(small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12)) {}
  explicit RestartFaults(RunConfig config) : driver_(std::move(config)) { commit(); }
  void commit() { rows_.commit(driver_.machine().take_changes()); }
  // The registry dies; what was not committed is gone.
  void restart() {
    auto opened = Machine::open(std::make_shared<RunConfig>(driver_.config()), rows_.rows(), driver_.now_us);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    driver_.machine() = std::move(*opened);
    driver_.check();
    commit();
  }
  Driver driver_;
  MemoryRows rows_;
};

TEST_F(RestartFaults, F10ACaptureInterruptedBeforeItsAnswerIsSentAgainInItsSlot) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  const std::int64_t live = driver_.state().live_refs;
  commit();
  restart();
  EXPECT_TRUE(driver_.state().garbage.empty()) << "the dead worker's claim is taken back, nothing is given up";
  EXPECT_EQ(driver_.state().live_refs, live);
  driver_.advance_us(kSecond);
  const auto again = driver_.claim().at(0);
  expect_sent_again(again, order);
  EXPECT_EQ(driver_.call(CompleteCaptureRequest{order.source_index, order.generation, order.nonce}).error().code,
            ErrorCode::kStaleGeneration);
  driver_.finish(again);
  ASSERT_TRUE(driver_.call(DrainRequest{}).ok());
  EXPECT_EQ(driver_.remove_all(), 1u) << "at once: the server that was sent both has answered";
}

TEST_F(RestartFaults, F10ItIsSentAgainEvenIfItTookTheLastSlot) {
  driver_.join_all();
  const std::size_t claimed = driver_.claim(100).size();
  ASSERT_GT(claimed, 1u);
  commit();
  restart();
  driver_.advance_us(kSecond);
  EXPECT_EQ(driver_.claim(100).size(), claimed);
}

TEST_F(RestartFaults, F10ARunThatEndedMeanwhileWaitsForItsWriters) {
  driver_.join(0);
  ASSERT_FALSE(driver_.claim().empty());
  ASSERT_TRUE(driver_.call(AbortRequest{"no more"}).ok());
  commit();
  restart();
  EXPECT_EQ(driver_.state().garbage.size(), 1u);
  EXPECT_EQ(driver_.remove_all(), 0u);
  driver_.advance_us(driver_.config().times.capture_timeout_us);
  EXPECT_EQ(driver_.remove_all(), 1u);
}

class RestartWithoutJournal : public RestartFaults {
 protected:
  RestartWithoutJournal() : RestartFaults(without_journal()) {}
  static RunConfig without_journal() {
    RunConfig config = small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12);
    config.servers_keep_journal = false;
    return config;
  }
};

TEST_F(RestartWithoutJournal, F10ACaptureInterruptedBeforeItsAnswerIsBurntAndStartedAnew) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  commit();
  restart();
  EXPECT_EQ(driver_.state().garbage.count({order.source_index, order.generation}), 1u);
  EXPECT_EQ(driver_.remove_all(), 0u) << "its writer may still be at work";
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kQueued);
  EXPECT_GT(driver_.state().entry(order.source_index).row.generation, order.generation);
  EXPECT_EQ(driver_.call(CompleteCaptureRequest{order.source_index, order.generation, order.nonce}).error().code,
            ErrorCode::kStaleGeneration);
}

TEST_F(RestartFaults, F10ACommittingOneIsRemovedAtOnceAndAReadyOneKept) {
  driver_.join(0);
  driver_.finish(driver_.claim().at(0));
  const auto order = driver_.claim().at(0);
  ASSERT_TRUE(driver_
                  .call(MarkCommittingRequest{order.source_index, order.generation, order.nonce, ref_for(order),
                                              order.reserved_bytes})
                  .ok());
  commit();
  restart();
  EXPECT_EQ(driver_.entry(0), EntryState::kReady);
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kQueued);
  EXPECT_EQ(driver_.remove_all(), 1u);
}

TEST_F(RestartFaults, F10AnEvictionInterruptedBetweenRemovalsIsResumed) {
  driver_.join_all();
  driver_.capture_all();
  ASSERT_TRUE(driver_.ack(0).ok());
  ASSERT_TRUE(driver_.ack(1).ok());
  ASSERT_EQ(driver_.entry(0), EntryState::kEvicting);
  commit();
  restart();
  EXPECT_EQ(driver_.entry(0), EntryState::kEvicting);
  EXPECT_EQ(driver_.remove_all(), 1u);
  EXPECT_EQ(driver_.entry(0), EntryState::kAbsent);
}

TEST_F(RestartFaults, F10WhatASecondAttemptAnsweredIsRemovedAtOnceAfterARestartToo) {
  driver_.join_all();
  driver_.claim();
  commit();
  restart();
  driver_.join_all();
  driver_.advance_us(kSecond);
  driver_.capture_all();
  commit();
  restart();
  driver_.join_all();
  ASSERT_TRUE(driver_.ack(0).ok());
  ASSERT_TRUE(driver_.ack(1).ok());
  ASSERT_EQ(driver_.entry(0), EntryState::kEvicting);
  EXPECT_EQ(driver_.remove_all(), 1u);
  EXPECT_EQ(driver_.entry(0), EntryState::kAbsent);
}

TEST_F(RestartFaults, F11AnOperationThatWasNotCommittedIsAsIfItNeverWas) {
  driver_.join(0);
  driver_.capture_all();
  commit();
  const auto ack = driver_.ack_request(0);
  ASSERT_TRUE(driver_.call(ack).ok());  // applied, not committed: nobody may be told
  restart();
  EXPECT_EQ(driver_.cursor(0), 0);
  driver_.join(0);
  EXPECT_TRUE(driver_.ack(0).ok());
}

TEST_F(RestartFaults, F12AStepFinishedWhileTheRegistryWasAwayIsAcknowledgedAfterRegisteringAgain) {
  driver_.join(0);
  driver_.capture_all();
  ASSERT_EQ(driver_.acquire(0, 0, 1)->leases.size(), 1u);
  commit();
  driver_.advance_us(20 * kSecond);
  restart();
  EXPECT_EQ(driver_.call(driver_.ack_request(0)).error().code, ErrorCode::kEpochFenced);
  driver_.join(0);
  EXPECT_EQ(driver_.cursor(0), 0);
  EXPECT_TRUE(driver_.ack(0).ok()) << "no lease is needed: the bytes were verified and trained on";
}

TEST_F(RestartFaults, L5GhostsKeepBytesForAFullTtlAndGrantNothing) {
  driver_.join_all();
  driver_.capture_all();
  const auto lease = driver_.acquire(0, 0, 1)->leases[0];
  commit();
  restart();
  driver_.join(1);
  ASSERT_TRUE(driver_.ack(1).ok());
  EXPECT_TRUE(driver_.call(HeartbeatRequest{driver_.key(1), true, {lease.token}})->renewed.empty());
  // Even a run that ends does not cut the reader.
  ASSERT_TRUE(driver_.call(DrainRequest{}).ok());
  EXPECT_EQ(driver_.entry(0), EntryState::kReady);
  driver_.advance_us(driver_.config().times.lease_ttl_us - 1);
  EXPECT_EQ(driver_.entry(0), EntryState::kReady);
  driver_.advance_us(1);
  EXPECT_EQ(driver_.entry(0), EntryState::kEvicting);
}

TEST_F(RestartFaults, F42DriftOnRestartIsRefusedByName) {
  const auto refused = [&](auto change) {
    auto config = std::make_shared<RunConfig>(driver_.config());
    change(*config);
    const auto opened = Machine::open(config, rows_.rows(), 1);
    return opened.ok() ? std::string("opened") : opened.status().field();
  };
  EXPECT_EQ(refused([](RunConfig& c) { c.contract_digest = "x"; }), "contract_digest");
  EXPECT_EQ(refused([](RunConfig& c) { c.source_digest = "x"; }), "source_digest");
  EXPECT_EQ(refused([](RunConfig& c) { c.run_id = "x"; }), "run_id");
  EXPECT_EQ(refused([](RunConfig& c) { c.max_live_refs += 1; }), "max_live_refs");
  EXPECT_EQ(refused([](RunConfig& c) { c.max_live_bytes += 1; }), "max_live_bytes");
  EXPECT_EQ(refused([](RunConfig& c) { c.sources.pop_back(); }), "total_samples");
  EXPECT_EQ(refused([](RunConfig& c) { c.consumers.pop_back(); }), "expected_consumers");
  EXPECT_EQ(refused([](RunConfig& c) { c.sources[2].sample_id = "run:other"; }), "sources[2]");
  EXPECT_EQ(refused([](RunConfig& c) { c.consumers[1].quantum = 2; }), "consumers[b].quantum");
  EXPECT_EQ(refused([](RunConfig&) {}), "opened");
}

}  // namespace
}  // namespace levada::fanout
