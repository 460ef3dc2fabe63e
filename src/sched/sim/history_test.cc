#include "sched/sim/history.h"

#include <gtest/gtest.h>

#include "sched/sim/test_tokenizer.h"

namespace levada::sched::sim {
namespace {

// Batched, chunked, warm, retracted, looked-ahead, streamed: every answer equals the solo, whole, cold one.
TEST(History, TwoThousandSeedsOfTrafficEqualTheSoloReference) {
  HistoryReport total;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    const HistoryReport report = run_history(seed, seed % 2 == 0 ? &test_tokenizer() : nullptr);
    ASSERT_EQ(report.failure, "") << "seed " << seed;
    total.requests += report.requests;
    total.aborted += report.aborted;
    total.failed += report.failed;
    total.cached_tokens += report.cached_tokens;
    total.stopped_by_string += report.stopped_by_string;
    total.steps += report.steps;
    total.retractions += report.retractions;
    total.evicted_tokens += report.evicted_tokens;
  }
  // The histories are worth something only if they meet what they are about.
  EXPECT_GT(total.retractions, 500u);
  EXPECT_GT(total.evicted_tokens, 10'000u);
  EXPECT_GT(total.cached_tokens, 10'000);
  EXPECT_GT(total.aborted, 500);
  EXPECT_GT(total.failed, 100);
  EXPECT_GT(total.stopped_by_string, 500);
  std::printf(
      "%d requests, %llu steps, %llu retractions, %llu tokens evicted, %d cached, %d aborted, %d failed, %d stop "
      "strings\n",
      total.requests, static_cast<unsigned long long>(total.steps), static_cast<unsigned long long>(total.retractions),
      static_cast<unsigned long long>(total.evicted_tokens), total.cached_tokens, total.aborted, total.failed,
      total.stopped_by_string);
}

TEST(History, OneSeedReplaysOneHistory) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(run_history(seed, nullptr).plans_hash, run_history(seed, nullptr).plans_hash) << "seed " << seed;
  }
}

}  // namespace
}  // namespace levada::sched::sim
