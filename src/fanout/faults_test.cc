// One test per row of the fault table (spec §7.2) that concerns registry, producer and consumer; the number stands in the
// name. Rows of the store, the arena and the processes are tests of their rooms.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"
#include "fanout/sim/memory_rows.h"

namespace levada::fanout {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

FailCaptureRequest failed(const CaptureOrder& order, Written written, bool retryable = true, bool journal = true) {
  return {order.source_index, order.generation, order.nonce, "boom", retryable, written, journal};
}

class FanoutFaults : public testing::Test {
 protected:
  // Two consumers, one sample a step, everything fits.
  Driver driver_{small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12)};
};

TEST_F(FanoutFaults, F01ALostReplyKeepsTheGenerationWhereTheServerHasAJournal) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  const std::int64_t live = driver_.state().live_refs;
  const auto reply = driver_.call(failed(order, Written::kMaybe));
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->state, EntryState::kCapturing);
  EXPECT_TRUE(reply->retried);
  EXPECT_EQ(driver_.state().live_refs, live) << "what may be written keeps its slot";
  driver_.advance_us(kSecond);
  const auto again = driver_.claim().at(0);
  EXPECT_EQ(again.source_index, order.source_index);
  EXPECT_EQ(again.generation, order.generation);
  EXPECT_EQ(again.attempt, 1);
  EXPECT_TRUE(again.replace);
  EXPECT_NE(again.nonce, order.nonce);
  // The first attempt's late answer is not accepted; the second's is.
  EXPECT_EQ(driver_.call(MarkCommittingRequest{0, order.generation, order.nonce, ref_for(order), 10}).error().code,
            ErrorCode::kStaleGeneration);
  driver_.finish(again);
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kReady);
}

TEST_F(FanoutFaults, F01ALostReplyTakesANewGenerationWhereItHasNone) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  ASSERT_TRUE(driver_.call(failed(order, Written::kMaybe, true, false)).ok());
  EXPECT_EQ(driver_.state().garbage.size(), 1u);
  EXPECT_EQ(driver_.remove_all(), 0u) << "a late write is possible: quarantined";
  driver_.advance_us(kSecond);
  const auto again = driver_.claim().at(0);
  EXPECT_EQ(again.source_index, order.source_index);
  EXPECT_GT(again.generation, order.generation);
  EXPECT_FALSE(again.replace);
  driver_.finish(again);
  driver_.advance_us(driver_.config().times.capture_timeout_us);
  EXPECT_EQ(driver_.remove_all(), 1u);
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kReady) << "the live generation is untouched";
}

TEST_F(FanoutFaults, F02AServerThatDiesGivesItsCapturesToAnotherAndItsObjectsAreCapturedAnew) {
  driver_.join(0);
  const auto positions = driver_.capture_all();
  ASSERT_FALSE(positions.empty());
  const auto held = driver_.acquire(0, 0, 1);
  const auto lost = driver_.call(ServerLostRequest{"tcp://server", 0});
  ASSERT_TRUE(lost.ok());
  EXPECT_EQ(lost->lost, static_cast<std::int64_t>(positions.size()));
  driver_.remove_all();
  EXPECT_EQ(driver_.capture_all(), positions);
  const auto again = driver_.acquire(0, 0, 1);
  ASSERT_EQ(again->leases.size(), 1u);
  EXPECT_GT(again->leases[0].generation, held->leases[0].generation);
  EXPECT_EQ(driver_.state().count(Count::kRecaptures), static_cast<std::int64_t>(positions.size()));
}

TEST_F(FanoutFaults, F03OnlyRefsOfAnotherIncarnationAreLost) {
  driver_.join(0);
  driver_.capture_all();
  EXPECT_EQ(driver_.call(ServerLostRequest{"tcp://server", 1})->lost, 0);
  EXPECT_EQ(driver_.call(ServerLostRequest{"tcp://other", 2})->lost, 0);
  const auto token = driver_.acquire(0, 0, 1)->leases[0].token;
  EXPECT_GT(driver_.call(ServerLostRequest{"tcp://server", 2})->lost, 0);
  const auto answer = driver_.acquire(0, 0, 1);
  EXPECT_TRUE(answer->leases.empty());
  EXPECT_EQ(answer->lost, std::vector<std::string>{token}) << "the holder is told";
}

TEST_F(FanoutFaults, F09APoisonedPromptEndsAfterItsRetriesAndItsConsumerIsTold) {
  driver_.join(0);
  for (std::int64_t tries = 0; tries <= driver_.config().max_capture_retries; ++tries) {
    driver_.advance_us(kSecond);
    std::optional<CaptureOrder> order;
    for (const auto& candidate : driver_.claim(100)) {
      if (candidate.source_index == 0) {
        order = candidate;
      } else {
        driver_.finish(candidate);
      }
    }
    ASSERT_TRUE(order.has_value());
    EXPECT_EQ(driver_.call(failed(*order, Written::kNo))->retried, tries < driver_.config().max_capture_retries);
    driver_.remove_all();
  }
  EXPECT_EQ(driver_.entry(0), EntryState::kFailed);
  const auto answer = driver_.acquire(0, 0, 1);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kCaptureFailed);
  EXPECT_NE(answer.error().message.find("boom"), std::string::npos);
  // A new start of the consumer is a new demand with a new budget.
  driver_.advance_us(driver_.config().times.session_ttl_us);
  driver_.join(0);
  EXPECT_EQ(driver_.entry(0), EntryState::kQueued);
}

TEST_F(FanoutFaults, F07AContractErrorFailsAtOnceAndItsObjectsAreRemoved) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  EXPECT_FALSE(driver_.call(failed(order, Written::kNo, false))->retried);
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kFailed);
  EXPECT_EQ(driver_.remove_all(), 1u);
  EXPECT_EQ(driver_.state().live_refs, 0);
}

TEST_F(FanoutFaults, F07MoreBytesThanReservedFailThePosition) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  const auto reply = driver_.call(MarkCommittingRequest{order.source_index, order.generation, order.nonce,
                                                        ref_for(order), order.reserved_bytes + 1});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->state, EntryState::kFailed);
  EXPECT_EQ(driver_.state().garbage.size(), 1u);
}

class FanoutRestart : public testing::Test {
 protected:
  FanoutRestart() { commit(); }
  void commit() { rows_.commit(driver_.machine().take_changes()); }
  // The registry dies; what was not committed is gone.
  void restart() {
    auto opened = Machine::open(std::make_shared<RunConfig>(driver_.config()), rows_.rows(), driver_.now_us);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    driver_.machine() = std::move(*opened);
    driver_.check();
    commit();
  }
  Driver driver_{small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12)};
  MemoryRows rows_;
};

TEST_F(FanoutRestart, F10ACaptureInterruptedBeforeItsAnswerIsBurntAndStartedAnew) {
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

TEST_F(FanoutRestart, F10ACommittingOneIsRemovedAtOnceAndAReadyOneKept) {
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

TEST_F(FanoutRestart, F10AnEvictionInterruptedBetweenRemovalsIsResumed) {
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

TEST_F(FanoutRestart, F11AnOperationThatWasNotCommittedIsAsIfItNeverWas) {
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

TEST_F(FanoutRestart, F12AStepFinishedWhileTheRegistryWasAwayIsAcknowledgedAfterRegisteringAgain) {
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

TEST_F(FanoutRestart, L5GhostsKeepBytesForAFullTtlAndGrantNothing) {
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

TEST_F(FanoutRestart, F42DriftOnRestartIsRefusedByName) {
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

TEST_F(FanoutFaults, F14ADeadConsumerPinsItsLeasesForTheirTtlAndItsNextQuantumForTheGrace) {
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

TEST_F(FanoutFaults, F15ACrashBeforeTheAckReplaysFromTheCheckpoint) {
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

TEST_F(FanoutFaults, F16ACrashAfterTheAckRewindsToARecordedCheckpoint) {
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

TEST_F(FanoutFaults, F17NeverTwoLiveSessionsOfOneConsumer) {
  driver_.join(0);
  const auto first = driver_.sessions[0];
  EXPECT_EQ(driver_.call(driver_.registration(0, "other")).error().code, ErrorCode::kDuplicateConsumer);
  // The same process again (its reply was lost) gets the same session.
  EXPECT_EQ(driver_.call(driver_.registration(0))->session_id, first.session_id);
  driver_.advance_us(driver_.config().times.session_ttl_us);
  EXPECT_TRUE(driver_.call(driver_.registration(0, "other")).ok());
  EXPECT_EQ(driver_.acquire(0, 0, 1).error().code, ErrorCode::kSessionFenced);
}

TEST_F(FanoutFaults, F18EveryCallOfAZombieIsFenced) {
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

TEST_F(FanoutFaults, F19AnExpiredLeaseIsLostAndAcquiredAnew) {
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

TEST_F(FanoutFaults, F20AnAckWhoseReplyWasLostMovesTheCursorOnce) {
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

TEST_F(FanoutFaults, F21AnAckOutOfOrderMovesNothing) {
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

TEST_F(FanoutFaults, F22ADuplicateCompleteIsANoOpAndAStaleOneIsGarbage) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  driver_.finish(order);
  const CompleteCaptureRequest complete{order.source_index, order.generation, order.nonce};
  EXPECT_EQ(driver_.call(complete)->state, EntryState::kReady);
  EXPECT_EQ(driver_.state().count(Count::kCaptures), 1);

  ASSERT_TRUE(driver_.ack(0).ok());
  auto other = driver_.claim().at(0);
  ASSERT_TRUE(driver_.call(failed(other, Written::kNo)).ok());
  driver_.remove_all();
  EXPECT_TRUE(driver_.state().garbage.empty());
  const CompleteCaptureRequest stale{other.source_index, other.generation, other.nonce};
  EXPECT_EQ(driver_.call(stale).error().code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(driver_.state().garbage.count({other.source_index, other.generation}), 1u) << "what it wrote is removed";
}

TEST_F(FanoutFaults, F23AFailedRemovalStaysCountedAndIsTriedAgain) {
  driver_.join_all();
  driver_.capture_all();
  ASSERT_TRUE(driver_.ack(0).ok());
  ASSERT_TRUE(driver_.ack(1).ok());
  const std::int64_t live = driver_.state().live_refs;
  const auto removal = driver_.call(RemovalsRequest{1, 0})->removals.at(0);
  EXPECT_EQ(driver_.call(FinishEvictionRequest{removal.source_index, removal.generation, {"key"}})->state,
            EntryState::kEvicting);
  EXPECT_EQ(driver_.state().live_refs, live);
  EXPECT_EQ(driver_.remove_all(), 0u) << "not at once";
  driver_.advance_us(driver_.config().times.removal_interval_us);
  EXPECT_EQ(driver_.remove_all(), 1u);
  EXPECT_EQ(driver_.state().live_refs, live - 1);
}

TEST_F(FanoutFaults, F24ARepeatedFinishOfARemovalIsANoOp) {
  driver_.join_all();
  driver_.capture_all();
  ASSERT_TRUE(driver_.ack(0).ok());
  ASSERT_TRUE(driver_.ack(1).ok());
  const auto removal = driver_.call(RemovalsRequest{1, 0})->removals.at(0);
  const FinishEvictionRequest finish{removal.source_index, removal.generation, {}};
  EXPECT_EQ(driver_.call(finish)->state, EntryState::kAbsent);
  const std::int64_t live = driver_.state().live_refs;
  EXPECT_EQ(driver_.call(finish)->state, EntryState::kAbsent);
  EXPECT_EQ(driver_.state().live_refs, live);
}

TEST_F(FanoutFaults, F25BurntGenerationsWaitForTheirLateWriter) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  ASSERT_TRUE(driver_.call(failed(order, Written::kMaybe)).ok());
  driver_.advance_us(kSecond);
  const auto again = driver_.claim().at(0);
  // The second attempt says that it failed; the first may still be writing the same keys.
  ASSERT_TRUE(driver_.call(failed(again, Written::kNo)).ok());
  EXPECT_EQ(driver_.remove_all(), 0u);
  driver_.advance_us(driver_.config().times.capture_timeout_us);
  EXPECT_EQ(driver_.remove_all(), 1u);
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

TEST_F(FanoutFaults, F48OneFailedConsumerDoesNotStopTheOthers) {
  driver_.join_all();
  ASSERT_TRUE(driver_.done(0, driver_.call(FailConsumerRequest{driver_.next(0), "out of memory"})).ok());
  for (int i = 0; i < 6; ++i) {
    driver_.capture_all();
    ASSERT_EQ(driver_.acquire(1, i, 1)->leases.size(), 1u);
    ASSERT_TRUE(driver_.ack(1).ok());
    driver_.remove_all();
  }
  ASSERT_TRUE(driver_.complete(1).ok());
  driver_.remove_all();
  EXPECT_EQ(driver_.state().run.status, RunStatus::kCompletedWithFailures);
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
