// What a snapshot counts (spec §5.12): times are those of this opening of the run.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"

namespace levada::fanout {
namespace {

constexpr std::int64_t kMs = 1000;

TEST(Snapshot, CapturesAndRemovalsAreTimed) {
  Driver driver(small_config({spec(1, 0, 1, 1)}, 2, 4));
  driver.join(0);
  const auto order = driver.claim().at(0);
  driver.advance_us(700 * kMs);
  driver.finish(order);
  ASSERT_TRUE(driver.ack(0).ok());
  driver.advance_us(30 * kMs);
  driver.remove_all();
  const auto counters = driver.call(SnapshotRequest{})->counters;
  EXPECT_EQ(counters.at("capture_latency_count"), 1);
  EXPECT_EQ(counters.at("capture_latency_ms_sum"), 700);
  EXPECT_EQ(counters.at("capture_latency_ms_max"), 700);
  EXPECT_EQ(counters.at("reclaim_latency_count"), 1);
  EXPECT_EQ(counters.at("reclaim_latency_ms_sum"), 30);
}

TEST(Snapshot, AWaitThatEndedCountsForItsConsumerAndForAll) {
  Driver driver(small_config({spec(1, 0, 1, 1)}, 2, 4));
  driver.join(0);
  ASSERT_TRUE(driver.acquire(0, 0, 1, 1000)->leases.empty());
  EXPECT_EQ(driver.call(SnapshotRequest{})->counters.at("queued_demand"), 1);
  EXPECT_EQ(driver.call(SnapshotRequest{})->counters.at("waiters"), 1);
  driver.advance_us(250 * kMs);
  driver.capture_all();
  ASSERT_EQ(driver.acquire(0, 0, 1)->leases.size(), 1u);
  const auto reply = driver.call(SnapshotRequest{});
  EXPECT_EQ(reply->counters.at("demand_wait_ms_max"), 250);
  EXPECT_EQ(reply->consumers[0].blocked_ms, 250);
  EXPECT_EQ(reply->counters.at("leases_granted"), 1);
  EXPECT_EQ(reply->counters.at("ready_at_request_refs"), 0);
  EXPECT_EQ(reply->counters.at("leases"), 1);
}

//   two slots for one consumer: both taken, and more is queued
TEST(Snapshot, AClaimThatALimitRefusesCountsTheTimeUntilOneThatIsServed) {
  Driver driver(small_config({spec(1, 3, 4, 4)}, 6, 2));
  driver.join(0);
  driver.capture_all();  // ends with a claim that gets nothing
  driver.advance_us(400 * kMs);
  EXPECT_EQ(driver.call(SnapshotRequest{})->counters.at("admission_blocked_refs_ms"), 400);
  ASSERT_TRUE(driver.ack(0).ok());
  driver.remove_all();
  EXPECT_EQ(driver.claim().size(), 1u);
  driver.advance_us(400 * kMs);
  const auto counters = driver.call(SnapshotRequest{})->counters;
  EXPECT_EQ(counters.at("admission_blocked_refs_ms"), 400);
  EXPECT_EQ(counters.at("admission_blocked_bytes_ms"), 0);
}

TEST(Snapshot, BytesThatRunOutBeforeSlotsAreNamed) {
  auto config = small_config({spec(1, 3, 4, 4)}, 6, 6);
  config.max_live_bytes = 2 * kBytesPerToken;
  Driver driver(config);
  driver.join(0);
  driver.capture_all();
  driver.advance_us(400 * kMs);
  const auto counters = driver.call(SnapshotRequest{})->counters;
  EXPECT_EQ(counters.at("admission_blocked_bytes_ms"), 400);
  EXPECT_EQ(counters.at("admission_blocked_refs_ms"), 0);
}

TEST(Snapshot, AnIdleRegistryIsShortOfNothing) {
  Driver driver(small_config({spec(1, 0, 1, 1)}, 2, 4));
  driver.join(0);
  driver.capture_all();
  driver.advance_us(400 * kMs);
  const auto counters = driver.call(SnapshotRequest{})->counters;
  EXPECT_EQ(counters.at("admission_blocked_refs_ms") + counters.at("admission_blocked_bytes_ms"), 0);
  EXPECT_EQ(counters.at("drain_remaining"), 0) << "nothing is drained yet";
  ASSERT_TRUE(driver.call(DrainRequest{}).ok());
  EXPECT_EQ(driver.call(SnapshotRequest{})->counters.at("drain_remaining"), 1);
}

TEST(Snapshot, FailuresAndLateWritersAreCounted) {
  Driver driver(small_config({spec(1, 0, 1, 1)}, 2, 4));
  driver.join(0);
  const auto order = driver.claim().at(0);
  const FailCaptureRequest lost{order.source_index, order.generation, order.nonce, "timed out", true, Written::kMaybe};
  ASSERT_TRUE(driver.call(lost).ok());
  EXPECT_EQ(driver.call(SnapshotRequest{})->counters.at("capture_failures"), 1);
  ASSERT_TRUE(driver.call(AbortRequest{"enough"}).ok());
  const auto counters = driver.call(SnapshotRequest{})->counters;
  EXPECT_EQ(counters.at("garbage"), 1);
  EXPECT_EQ(counters.at("garbage_quarantined"), 1);
}

}  // namespace
}  // namespace levada::fanout
