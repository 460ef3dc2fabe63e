#include "sched/sim/history.h"

#include <gtest/gtest.h>

#include "sched/sim/test_tokenizer.h"
#include "support/instrumented.h"

namespace levada::sched::sim {
namespace {

constexpr int kHistories = test::kInstrumented ? 200 : 1000;  // ten times as many: tests/histories_test.cc

// Batched, chunked, warm, retracted, looked-ahead, streamed: every answer equals the solo, whole, cold one.
TEST(History, AnyTrafficEqualsTheSoloReference) {
  HistoryReport total;
  for (std::uint64_t seed = 1; seed <= kHistories; ++seed) {
    const HistoryReport report = run_history(seed, seed % 2 == 0 ? &test_tokenizer() : nullptr);
    ASSERT_EQ(report.failure, "") << "seed " << seed;
    total.add(report);
  }
  // The histories are worth something only if they meet what they are about.
  EXPECT_GT(total.retractions, kHistories / 4u);
  EXPECT_GT(total.evicted_tokens, kHistories * 5u);
  EXPECT_GT(total.cached_tokens, kHistories * 5);
  EXPECT_GT(total.aborted, kHistories / 4);
  EXPECT_GT(total.failed, kHistories / 20);
  EXPECT_GT(total.stopped_by_string, kHistories / 4);
  EXPECT_GT(total.logprobs, kHistories * 10);
  EXPECT_GT(total.hidden_rows, kHistories * 10);
  EXPECT_GT(total.guided_tokens, kHistories * 10);
  EXPECT_GT(total.families_cut, kHistories / 20);
  EXPECT_GT(total.accepted_drafts, kHistories * 5);
  EXPECT_GT(total.verified_drafts, total.accepted_drafts + kHistories);
  EXPECT_GT(total.swaps, kHistories / 2);
  EXPECT_GT(total.accepted_repeats, kHistories);
  std::printf(
      "%d requests, %llu steps, %llu retractions, %llu tokens evicted, %d cached, %d aborted, %d failed, %d stop "
      "strings\n",
      total.requests, static_cast<unsigned long long>(total.steps), static_cast<unsigned long long>(total.retractions),
      static_cast<unsigned long long>(total.evicted_tokens), total.cached_tokens, total.aborted, total.failed,
      total.stopped_by_string);
}

TEST(History, OneSeedReplaysOneHistory) {
  for (std::uint64_t seed = 1; seed <= kHistories / 40; ++seed) {
    EXPECT_EQ(run_history(seed, nullptr).plans_hash, run_history(seed, nullptr).plans_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace levada::sched::sim
