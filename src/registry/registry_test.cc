#include "registry/registry.h"

#include <gtest/gtest.h>

#include <future>

#include "fanout/sim/driver.h"
#include "registry/memory_storage.h"

namespace levada::registry {
namespace {

using fanout::AcquireReply;
using fanout::AcquireRequest;
using fanout::ErrorCode;
using fanout::Head;
using fanout::Outcome;
using fanout::Reply;

class RegistryTest : public testing::Test {
 protected:
  RegistryTest()
      : config_(std::make_shared<fanout::RunConfig>(
            fanout::small_config({fanout::spec(1, 3, 2, 3), fanout::spec(1, 3, 2, 3)}, 6, 6))) {
    clock_.advance_us(1'000'000);
  }
  void SetUp() override { open(); }

  void open() {
    registry_.reset();
    auto opened = Registry::open(config_, std::make_unique<MemoryStorageHandle>(storage_), clock_);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    registry_ = std::move(*opened);
    api_ = std::make_unique<LocalApi>(*registry_);
  }
  fanout::RegisterRequest registration(const std::string& id) const {
    return {"run", id, "contract", "plan", "recipe", 0, 3, 2, 3, 1, "nonce " + id, false};
  }
  fanout::SessionKey join(const std::string& id) {
    auto reply = api_->call(registration(id));
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    return {reply->session_id, reply->session_epoch};
  }
  // One capture from claim to ready.
  void capture_one() {
    auto claimed = api_->call(fanout::ClaimRequest{"w", "http://server", ++claim_id_, 1, 0});
    ASSERT_TRUE(claimed.ok());
    ASSERT_EQ(claimed->requests.size(), 1u);
    const auto& order = claimed->requests[0];
    ASSERT_TRUE(api_->call(fanout::MarkCommittingRequest{order.source_index, order.generation, order.nonce,
                                                         fanout::ref_for(order), order.reserved_bytes})
                    .ok());
    ASSERT_TRUE(api_->call(fanout::CompleteCaptureRequest{order.source_index, order.generation, order.nonce}).ok());
  }
  std::future<Outcome<Reply>> submit(fanout::Request request, Registry::Ticket* ticket = nullptr) {
    auto promise = std::make_shared<std::promise<Outcome<Reply>>>();
    auto future = promise->get_future();
    const auto number = registry_->submit(
        std::move(request), [promise](Outcome<Reply> outcome) { promise->set_value(std::move(outcome)); });
    if (ticket != nullptr) *ticket = number;
    return future;
  }
  static bool is_waiting(std::future<Outcome<Reply>>& future) {
    return future.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout;
  }

  std::shared_ptr<const fanout::RunConfig> config_;
  ManualClock clock_;
  MemoryStorage storage_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<LocalApi> api_;
  std::int64_t claim_id_ = 0;
};

TEST_F(RegistryTest, AWaitingAcquireIsAnsweredWhenItsPositionBecomesReady) {
  const auto key = join("a");
  auto waiting = submit(AcquireRequest{key, 0, 1, 20'000});
  EXPECT_TRUE(is_waiting(waiting));
  capture_one();
  const auto outcome = waiting.get();
  ASSERT_TRUE(outcome.ok());
  const auto& reply = std::get<AcquireReply>(*outcome);
  ASSERT_EQ(reply.leases.size(), 1u);
  EXPECT_EQ(reply.leases[0].source_index, 0);
  EXPECT_FALSE(reply.leases[0].ready_at_request);
}

// B48: three different answers.
TEST_F(RegistryTest, NothingYetIsNotTheEnd) {
  const auto key = join("a");
  auto nothing = submit(AcquireRequest{key, 0, 1, 5'000});
  EXPECT_TRUE(is_waiting(nothing));
  clock_.advance_us(5'000'000);
  registry_->nudge();
  const auto outcome = nothing.get();
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(std::get<AcquireReply>(*outcome).leases.empty());
  EXPECT_EQ(std::get<AcquireReply>(*outcome).head, Head::kQueued);

  for (int i = 0; i < 6; ++i) {
    capture_one();
    const auto got = api_->call(AcquireRequest{key, i, 1, 0});
    ASSERT_TRUE(got.ok());
    ASSERT_EQ(got->leases.size(), 1u);
    ASSERT_TRUE(
        api_->call(fanout::AdvanceRequest{{key.session_id, key.session_epoch, i + 1}, i, i + 1, i + 1, true}).ok());
  }
  const auto end = api_->call(AcquireRequest{key, 6, 1, 20'000});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->head, Head::kEof);
}

TEST_F(RegistryTest, AWaitingClaimIsAnsweredWhenAConsumerComes) {
  auto waiting = submit(fanout::ClaimRequest{"w", "http://server", 1, 4, 20'000});
  EXPECT_TRUE(is_waiting(waiting));
  join("a");
  const auto outcome = waiting.get();
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(std::get<fanout::ClaimReply>(*outcome).requests.empty());
}

TEST_F(RegistryTest, ACancelledWaitLeavesNothingBehind) {
  const auto key = join("a");
  Registry::Ticket ticket = 0;
  auto waiting = submit(AcquireRequest{key, 0, 1, 20'000}, &ticket);
  EXPECT_TRUE(is_waiting(waiting));
  registry_->cancel(ticket);
  EXPECT_EQ(waiting.get().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(api_->call(fanout::SnapshotRequest{})->counters["waiters"], 0);
}

TEST_F(RegistryTest, WhatStillWaitsIsAnsweredWhenTheRegistryStops) {
  const auto key = join("a");
  auto waiting = submit(AcquireRequest{key, 0, 1, 20'000});
  EXPECT_TRUE(is_waiting(waiting));
  registry_->stop();
  EXPECT_EQ(waiting.get().error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(api_->call(fanout::SnapshotRequest{}).error().code, ErrorCode::kUnavailable);
}

// Fault 44: nobody is told that something was done, and the state is the database's.
TEST_F(RegistryTest, AFailedCommitIsNotAnsweredAsDone) {
  const auto key = join("a");
  capture_one();
  ASSERT_TRUE(api_->call(AcquireRequest{key, 0, 1, 0}).ok());
  storage_.fail_commits = 1;
  const auto ack = fanout::AdvanceRequest{{key.session_id, key.session_epoch, 1}, 0, 1, 1, true};
  const auto lost = api_->call(ack);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
  // Reading the database back is a restart: the session must register again, at the cursor that is stored.
  EXPECT_EQ(api_->call(ack).error().code, ErrorCode::kEpochFenced);
  const auto again = api_->call(registration("a"));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->cursor, 0);
  ASSERT_TRUE(api_->call(fanout::AdvanceRequest{{again->session_id, again->session_epoch, 1}, 0, 1, 1, true}).ok());
}

TEST_F(RegistryTest, ADatabaseThatStaysAwayIsTriedAgain) {
  join("a");
  storage_.fail_commits = 1;
  storage_.fail_loads = 1;
  EXPECT_EQ(api_->call(registration("b")).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(api_->call(registration("b")).error().code, ErrorCode::kUnavailable);
  clock_.advance_us(1'000'000);
  EXPECT_TRUE(api_->call(registration("b")).ok());
}

// B35: restart the registry, and the next request works after registering again.
TEST_F(RegistryTest, ConsumersOutliveARestart) {
  const auto key = join("a");
  capture_one();
  ASSERT_TRUE(api_->call(AcquireRequest{key, 0, 1, 0}).ok());
  open();
  EXPECT_EQ(api_->call(AcquireRequest{key, 0, 1, 0}).error().code, ErrorCode::kEpochFenced);
  const auto again = api_->call(registration("a"));
  ASSERT_TRUE(again.ok());
  const fanout::SessionKey new_key{again->session_id, again->session_epoch};
  const auto lease = api_->call(AcquireRequest{new_key, 0, 1, 0});
  ASSERT_TRUE(lease.ok());
  ASSERT_EQ(lease->leases.size(), 1u);
  EXPECT_EQ(lease->leases[0].generation, 1);  // ready stays ready: nothing was captured twice
}

TEST_F(RegistryTest, RequestsThatChangeNothingCommitNothing) {
  const auto key = join("a");
  const int before = storage_.commits;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(api_->call(fanout::HeartbeatRequest{key, false, {}}).ok());
    ASSERT_TRUE(api_->call(AcquireRequest{key, 0, 1, 0}).ok());
    ASSERT_TRUE(api_->call(fanout::SnapshotRequest{}).ok());
  }
  EXPECT_EQ(storage_.commits, before);
}

}  // namespace
}  // namespace levada::registry
