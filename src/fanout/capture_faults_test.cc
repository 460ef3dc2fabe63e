// Faults of captures and removals.
// Rows of the fault table (spec §7.2), the number in the test's name; those of the store, the arena and the processes are
// tests of their rooms.
#include <gtest/gtest.h>

#include "fanout/sim/driver.h"

namespace levada::fanout {
namespace {

FailCaptureRequest failed(const CaptureOrder& order, Written written, bool retryable = true) {
  return {order.source_index, order.generation, order.nonce, "boom", retryable, written};
}

class CaptureFaults : public testing::Test {
 protected:
  // Two consumers, one sample a step, everything fits.
  Driver driver_{small_config({spec(1, 3, 4, 3), spec(1, 3, 4, 3)}, 6, 12)};
};

TEST_F(CaptureFaults, F01ALostReplyKeepsTheGenerationWhereTheServerHasAJournal) {
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
  expect_sent_again(again, order);
  EXPECT_NE(again.nonce, order.nonce);
  // The first attempt's late answer is not accepted; the second's is.
  EXPECT_EQ(driver_.call(MarkCommittingRequest{0, order.generation, order.nonce, ref_for(order), 10}).error().code,
            ErrorCode::kStaleGeneration);
  driver_.finish(again);
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kReady);
  // And once the journal has answered, no writer is left to be waited for.
  ASSERT_TRUE(driver_.call(DrainRequest{}).ok());
  EXPECT_EQ(driver_.remove_all(), 1u);
}

TEST_F(CaptureFaults, F01ALostReplyTakesANewGenerationWhereItHasNone) {
  auto config = driver_.config();
  config.servers_keep_journal = false;
  Driver driver(config);
  driver.join(0);
  const auto order = driver.claim().at(0);
  ASSERT_TRUE(driver.call(failed(order, Written::kMaybe)).ok());
  EXPECT_EQ(driver.state().garbage.size(), 1u);
  EXPECT_EQ(driver.remove_all(), 0u) << "a late write is possible: quarantined";
  driver.advance_us(kSecond);
  const auto again = driver.claim().at(0);
  EXPECT_EQ(again.source_index, order.source_index);
  EXPECT_GT(again.generation, order.generation);
  EXPECT_FALSE(again.replace);
  driver.finish(again);
  driver.advance_us(driver.config().times.capture_timeout_us);
  EXPECT_EQ(driver.remove_all(), 1u);
  EXPECT_EQ(driver.entry(order.source_index), EntryState::kReady) << "the live generation is untouched";
}

TEST_F(CaptureFaults, F02AServerThatDiesGivesItsCapturesToAnotherAndItsObjectsAreCapturedAnew) {
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

TEST_F(CaptureFaults, F03OnlyRefsOfAnotherIncarnationAreLost) {
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

TEST_F(CaptureFaults, F09APoisonedPromptEndsAfterItsRetriesAndItsConsumerIsTold) {
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

TEST_F(CaptureFaults, F07AContractErrorFailsAtOnceAndItsObjectsAreRemoved) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  EXPECT_FALSE(driver_.call(failed(order, Written::kNo, false))->retried);
  EXPECT_EQ(driver_.entry(order.source_index), EntryState::kFailed);
  EXPECT_EQ(driver_.remove_all(), 1u);
  EXPECT_EQ(driver_.state().live_refs, 0);
}

TEST_F(CaptureFaults, F07MoreBytesThanReservedFailThePosition) {
  driver_.join(0);
  const auto order = driver_.claim().at(0);
  const auto reply = driver_.call(MarkCommittingRequest{order.source_index, order.generation, order.nonce,
                                                        ref_for(order), order.reserved_bytes + 1});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->state, EntryState::kFailed);
  EXPECT_EQ(driver_.state().garbage.size(), 1u);
}

TEST_F(CaptureFaults, F22ADuplicateCompleteIsANoOpAndAStaleOneIsGarbage) {
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

// Found by fuzzing: a generation that is queued was sent to nobody, whoever says that it is complete.
TEST_F(CaptureFaults, F22ACompletionOfWhatWasNeverClaimedLeavesNothing) {
  driver_.join(0);
  ASSERT_EQ(driver_.entry(0), EntryState::kQueued);
  EXPECT_EQ(driver_.call(CompleteCaptureRequest{0, 1, "0.1.0"}).error().code, ErrorCode::kStaleGeneration);
  EXPECT_TRUE(driver_.state().garbage.empty());
  driver_.finish(driver_.claim().at(0));
}

TEST_F(CaptureFaults, F23AFailedRemovalStaysCountedAndIsTriedAgain) {
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

TEST_F(CaptureFaults, F24ARepeatedFinishOfARemovalIsANoOp) {
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

TEST_F(CaptureFaults, F25BurntGenerationsWaitForTheirLateWriter) {
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

}  // namespace
}  // namespace levada::fanout
