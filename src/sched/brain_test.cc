#include "sched/brain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sched/brain_support_test.h"
#include "sched/sim/test_tokenizer.h"

namespace levada::sched {
namespace {

using core::FinishReason;
using core::RequestId;
using core::Token;

TEST(Brain, WhatDoesNotFitAnEmptyPoolIsRefusedAtOnceAndTheNextIsServed) {  // B25
  Bench bench({.page_size = 4, .total_pages = 250, .context = 4000});      // pool: 1,000 tokens
  bench.submit(1, prompt(1500), 10);
  ASSERT_EQ(bench.reason(1), FinishReason::kError);
  EXPECT_EQ(bench.answers[1].finishes[0].status.code(), StatusCode::kPayloadTooLarge);
  EXPECT_NE(bench.answers[1].finishes[0].status.message().find("1500"), std::string::npos);
  EXPECT_NE(bench.answers[1].finishes[0].status.message().find("1000"), std::string::npos);
  bench.submit(2, prompt(10), 3);
  bench.run_until_idle();
  EXPECT_EQ(bench.reason(2), FinishReason::kLength);
  bench.expect_all_returned();
}

TEST(Brain, ANeedThatEqualsThePoolIsServed) {  // B25
  for (const std::int32_t page_size : {1, 4, 8}) {
    Bench bench({.page_size = page_size, .total_pages = 1000 / page_size, .context = 4000});
    bench.submit(1, prompt(900), 100);
    bench.submit(2, prompt(999, 9), 1);
    bench.run_until_idle();
    EXPECT_EQ(bench.answers[1].ids.size(), 100u);
    EXPECT_EQ(bench.answers[2].ids.size(), 1u);
    bench.expect_all_returned();
  }
}

TEST(Brain, OutputBeyondThePoolEndsWithLength) {
  Bench bench({.page_size = 4, .total_pages = 10, .context = 4000});
  bench.submit(1, prompt(30), 500);
  bench.run_until_idle();
  EXPECT_EQ(bench.reason(1), FinishReason::kLength);
  EXPECT_EQ(bench.answers[1].ids.size(), 10u);
}

TEST(Brain, OutputBeyondTheContextEndsWithLength) {
  Bench bench({.page_size = 4, .total_pages = 100, .context = 32});
  bench.submit(1, prompt(30), 500);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].ids.size(), 2u);
}

TEST(Brain, TwoRequestsThatTogetherExceedThePoolBothFinish) {  // B26
  Scene setup{.page_size = 4, .total_pages = 7};
  setup.options.schedule_conservativeness = 0;  // reserves nothing for what the first will need
  setup.options.chunked_prefill_size = 8;
  Bench bench(setup);
  bench.submit(1, prompt(14), 14);
  bench.submit(2, prompt(6, 9), 6);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].ids.size(), 14u);
  EXPECT_EQ(bench.answers[2].ids.size(), 6u);
  EXPECT_GT(bench.brain.snapshot().retractions, 0u);
  bench.expect_all_returned();
}

TEST(Brain, ARetractedAnswerContinuesWhereItStopped) {
  Scene small{.page_size = 4, .total_pages = 12};
  small.options.schedule_conservativeness = 0;
  Bench bench(small), alone({.page_size = 4, .total_pages = 12});
  bench.submit(1, prompt(14), 20);
  bench.submit(2, prompt(10, 9), 20);
  bench.run_until_idle();
  ASSERT_GT(bench.brain.snapshot().retractions, 0u);
  alone.submit(2, prompt(10, 9), 20);
  alone.run_until_idle();
  EXPECT_EQ(bench.answers[2].ids, alone.answers[2].ids);
  EXPECT_EQ(bench.answers[2].cached_tokens, 0);  // counted once, at first admission
}

TEST(Brain, AbortWhileQueuedPrefillingOrDecodingGivesEverythingBackWithinTwoSteps) {  // B42
  Scene setup;
  setup.options.chunked_prefill_size = 8;
  setup.options.max_running_requests = 2;
  Bench bench(setup);
  bench.submit(1, prompt(4), 500);
  for (int i = 0; i < 5; ++i) bench.turn();
  bench.submit(2, prompt(100, 9), 500);
  bench.submit(3, prompt(4, 11), 500);
  for (int i = 0; i < 3; ++i) bench.turn();
  bench.plan();  // aborted with a plan in flight
  const Snapshot busy = bench.brain.snapshot();
  ASSERT_EQ(busy.running, 1);
  ASSERT_EQ(busy.prefilling, 1);
  ASSERT_EQ(busy.waiting, 1);
  for (const std::uint64_t id : {1, 2, 3}) bench.abort(id);
  for (const std::uint64_t id : {1, 2, 3}) EXPECT_EQ(bench.reason(id), FinishReason::kAbort);
  bench.turn();
  bench.turn();
  bench.expect_all_returned();
}

TEST(Brain, AbortIsIdempotentAndAnUnknownIdIsIgnored) {
  Bench bench({});
  bench.submit(1, prompt(4), 50);
  bench.turn();
  bench.abort(77);
  bench.abort(1);
  bench.abort(1);
  EXPECT_EQ(bench.reason(1), FinishReason::kAbort);
  EXPECT_EQ(bench.brain.snapshot().aborts, 1u);
}

TEST(Brain, ALostExecutorEndsEveryRequestAndRefusesTheNext) {
  Bench bench({});
  bench.submit(1, prompt(10), 50);
  for (int i = 0; i < 3; ++i) bench.turn();
  bench.submit(2, prompt(10, 9), 50);  // in no plan yet
  bench.model.lose(internal_error("the device is lost: kept error 700"));
  bench.turn();
  bench.turn();
  for (const std::uint64_t id : {1, 2}) {
    ASSERT_EQ(bench.reason(id), FinishReason::kError);
    EXPECT_EQ(bench.answers[id].finishes[0].status.message(), "the device is lost: kept error 700");
  }
  bench.run_until_idle();
  bench.expect_all_returned();
  bench.submit(3, prompt(10), 5);
  ASSERT_EQ(bench.reason(3), FinishReason::kError);
  const Status refusal = bench.answers[3].finishes[0].status;
  EXPECT_EQ(refusal.code(), StatusCode::kUnavailable);
  EXPECT_NE(refusal.message().find("kept error 700; the server must be restarted"), std::string::npos);
  EXPECT_EQ(bench.brain.snapshot().health.message(), refusal.message());
  EXPECT_EQ(bench.brain.next_plan(), nullptr);
}

TEST(Brain, AFailedStepFailsItsRequestsWithItsReasonAndTheNextIsServed) {  // B43
  for (const std::int32_t good_turns : {0, 5}) {
    Bench bench({});
    bench.submit(1, prompt(10), 50);
    bench.submit(2, prompt(10, 9), 50);
    for (std::int32_t i = 0; i < good_turns; ++i) bench.turn();
    bench.model.fail_next(internal_error("device lost"));
    bench.turn();
    bench.turn();
    for (const std::uint64_t id : {1, 2}) {
      ASSERT_EQ(bench.reason(id), FinishReason::kError);
      EXPECT_EQ(bench.answers[id].finishes[0].status.message(), "device lost");
    }
    bench.run_until_idle();
    bench.expect_all_returned();
    bench.submit(3, prompt(10), 5);
    bench.run_until_idle();
    EXPECT_EQ(bench.reason(3), FinishReason::kLength);
    Bench fresh({});
    fresh.submit(3, prompt(10), 5);
    fresh.run_until_idle();
    EXPECT_EQ(bench.answers[3].ids, fresh.answers[3].ids);  // nothing of the failed step was kept as cache
  }
}

TEST(Brain, ASecondUseOfALiveIdIsRefusedAndTheFirstIsUnaffected) {  // B36
  Bench bench({});
  bench.submit(1, prompt(10), 5);
  bench.turn();
  bench.submit(1, prompt(10), 5);
  ASSERT_EQ(bench.answers[1].finishes.size(), 1u);
  EXPECT_EQ(bench.answers[1].finishes[0].status.code(), StatusCode::kAlreadyExists);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].ids.size(), 5u);
  ASSERT_EQ(bench.answers[1].finishes.size(), 2u);
  EXPECT_EQ(bench.answers[1].finishes[1].reason, FinishReason::kLength);
}

TEST(Brain, AnEndedIdMayBeUsedAgain) {  // B36
  Bench bench({});
  bench.submit(1, prompt(10), 5);
  bench.run_until_idle();
  bench.submit(1, prompt(10), 5);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].ids.size(), 10u);
}

TEST(Brain, BadRequestsAreRefusedWithTheirReasonAndTheNextIsServed) {  // B41
  Bench bench({});
  bench.submit(1, {}, 5);
  bench.submit(2, {3, kVocab}, 5);
  bench.submit(3, {-1}, 5);
  bench.submit(4, prompt(3), -2);
  bench.submit(5, prompt(3), 5, {"x"});  // stop strings without a tokenizer
  for (std::uint64_t id = 1; id <= 5; ++id) {
    ASSERT_EQ(bench.reason(id), FinishReason::kError);
    EXPECT_EQ(bench.answers[id].finishes[0].status.code(), StatusCode::kInvalidArgument);
  }
  bench.submit(6, prompt(3), 0);
  EXPECT_EQ(bench.reason(6), FinishReason::kLength);
  bench.submit(7, prompt(3), 2);
  bench.run_until_idle();
  EXPECT_EQ(bench.reason(7), FinishReason::kLength);
}

TEST(Brain, BeyondTheQueueLimitARequestIsRefused) {
  Scene setup;
  setup.options.max_running_requests = 1;
  setup.options.max_queued_requests = 2;
  Bench bench(setup);
  for (std::uint64_t id = 1; id <= 4; ++id) bench.submit(id, prompt(4), 3);
  ASSERT_EQ(bench.reason(4), FinishReason::kError);
  EXPECT_EQ(bench.answers[4].finishes[0].status.code(), StatusCode::kResourceExhausted);
  bench.run_until_idle();
  for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(bench.reason(id), FinishReason::kLength);
}

TEST(Brain, AnAnswerIsCacheForTheNextTurnOfTheConversation) {
  Bench bench({});
  bench.submit(1, prompt(10), 7);
  bench.run_until_idle();
  std::vector<Token> next = prompt(10);
  next.insert(next.end(), bench.answers[1].ids.begin(), bench.answers[1].ids.end());
  bench.submit(2, next, 3);  // 17 tokens; KV of the first 16 was written: 4 pages
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[2].cached_tokens, 16);
}

// Lookahead computes a row beyond the token that ends the answer: nothing of it may be found by anybody.
TEST(Brain, B45WhatIsComputedBeyondTheStopIsNoPartOfTheCache) {
  Bench whole({});
  whole.submit(1, prompt(10), 12);
  whole.run_until_idle();
  const std::vector<Token> answer = whole.answers[1].ids;
  for (std::size_t n = 1; n <= answer.size(); ++n) {
    if (std::find(answer.begin(), answer.end(), answer[n - 1]) != answer.begin() + static_cast<std::ptrdiff_t>(n) - 1)
      continue;  // it would stop earlier
    Bench warm({}), cold({});
    core::Request request = Bench::greedy(1, prompt(10), 12);
    request.sampling.stop_token_ids = {answer[n - 1]};
    warm.brain.submit(std::move(request));
    warm.run_until_idle();
    ASSERT_EQ(warm.answers[1].ids.size(), n);
    std::vector<Token> next = prompt(10);
    next.insert(next.end(), warm.answers[1].ids.begin(), warm.answers[1].ids.end());
    next.insert(next.end(), {7, 8, 9, 10, 11});
    for (Bench* bench : {&warm, &cold}) {
      bench->submit(2, next, 5);
      bench->run_until_idle();
    }
    // Of prompt + answer all but the last token has its KV from before the stop: whole pages of that.
    EXPECT_EQ(warm.answers[2].cached_tokens, (10 + static_cast<std::int32_t>(n) - 1) / 4 * 4) << n;
    EXPECT_EQ(warm.answers[2].ids, cold.answers[2].ids) << n;
    EXPECT_TRUE(warm.brain.audit().ok());
  }
}

TEST(Brain, AFullyCachedPromptStillComputesItsLastToken) {
  Bench bench({});
  bench.submit(1, prompt(8), 4);
  bench.run_until_idle();
  bench.submit(2, prompt(8), 4);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[2].cached_tokens, 4);
  EXPECT_EQ(bench.answers[1].ids, bench.answers[2].ids);
}

TEST(Brain, NamespacesDoNotShareCachedPrefixes) {  // B28
  Bench bench({});
  const auto submit = [&](std::uint64_t id, core::CacheNamespace name_space) {
    core::Request request;
    request.id = RequestId{id};
    request.prompt = prompt(20);
    request.sampling.max_new_tokens = 2;
    request.cache_namespace = std::move(name_space);
    bench.brain.submit(std::move(request));
    bench.run_until_idle();
  };
  submit(1, {});
  submit(2, {.extra_key = "ab", .cache_salt = "c"});
  submit(3, {.extra_key = "a", .cache_salt = "bc"});
  submit(4, {.extra_key = ""});
  submit(5, {.extra_key = "ab", .cache_salt = "c"});
  for (const std::uint64_t id : {1, 2, 3, 4}) EXPECT_EQ(bench.answers[id].cached_tokens, 0) << id;
  EXPECT_EQ(bench.answers[5].cached_tokens, 16);
}

TEST(Brain, LookaheadComputesTheSameTokensAndNeverOverrunsAPredictedLength) {
  Scene plain_setup;
  plain_setup.options.disable_overlap_schedule = true;
  Bench plain(plain_setup), ahead({});
  for (Bench* bench : {&plain, &ahead}) {
    bench->submit(1, prompt(10), 9);
    bench->submit(2, prompt(30, 9), 4);
    bench->run_until_idle();
  }
  EXPECT_EQ(plain.answers[1].ids, ahead.answers[1].ids);
  EXPECT_EQ(plain.answers[2].ids, ahead.answers[2].ids);
  EXPECT_EQ(plain.brain.snapshot().steps, ahead.brain.snapshot().steps);  // an overrun would need one more
}

TEST(Brain, TwoPlansAreInFlightWithLookaheadAndOneWithout) {
  Scene setup;
  Bench ahead(setup);
  setup.options.disable_overlap_schedule = true;
  Bench plain(setup);
  for (Bench* bench : {&ahead, &plain}) {
    bench->submit(1, prompt(10), 50);
    for (int i = 0; i < 4; ++i) bench->plan();
  }
  EXPECT_EQ(ahead.model.in_flight(), 2u);
  EXPECT_EQ(plain.model.in_flight(), 1u);
}

TEST(Brain, FlushIsRefusedWhileRequestsRunAndEmptiesTheTreeAfterwards) {
  Bench bench({});
  bench.submit(1, prompt(20), 5);
  bench.turn();
  Status answer;
  bench.brain.flush_cache([&](Status status) { answer = std::move(status); });
  EXPECT_EQ(answer.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(answer.message().find("1 requests are running"), std::string::npos);
  bench.run_until_idle();
  EXPECT_GT(bench.brain.snapshot().cached_pages, 0);
  bench.brain.flush_cache([&](Status status) { answer = std::move(status); });
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(bench.brain.snapshot().free_pages, bench.limits.total_pages);
}

TEST(Brain, WhatComesAfterAFlushReadsNothingCachedBeforeIt) {
  Bench bench({});
  bench.submit(1, prompt(20), 40);
  bench.turn();
  bench.turn();
  bench.plan();
  bench.abort(1);  // its pages stay until the plan in flight is applied
  bool flushed = false;
  bench.brain.flush_cache([&](Status status) { flushed = status.ok(); });
  EXPECT_FALSE(flushed);
  bench.submit(2, prompt(20), 3);
  bench.plan();
  EXPECT_EQ(bench.model.in_flight(), 1u);
  bench.run_until_idle();
  EXPECT_TRUE(flushed);
  EXPECT_EQ(bench.reason(2), FinishReason::kLength);
  EXPECT_EQ(bench.answers[2].cached_tokens, 0);
  bench.expect_all_returned();
}

TEST(Brain, LpmAdmitsTheLongestCachedPrefixFirst) {
  Scene setup;
  setup.options.schedule_policy = "lpm";
  setup.options.max_running_requests = 1;
  Bench bench(setup);
  bench.submit(1, prompt(40), 2);
  bench.run_until_idle();
  bench.submit(2, prompt(40, 9), 8);
  bench.submit(3, prompt(40), 8);
  bench.turn();
  bench.turn();
  EXPECT_TRUE(bench.answers[2].ids.empty());
  EXPECT_FALSE(bench.answers[3].ids.empty());
}

TEST(Brain, ALongPromptIsPrefilledBesideRunningAnswers) {
  Scene setup;
  setup.options.chunked_prefill_size = 16;
  Bench bench(setup);
  bench.submit(1, prompt(8), 40);
  bench.turn();
  bench.turn();
  const std::size_t before = bench.answers[1].ids.size();
  bench.submit(2, prompt(160, 9), 4);
  for (int i = 0; i < 8; ++i) bench.turn();
  EXPECT_EQ(bench.answers[1].ids.size(), before + 8);  // one token a step all the while
  EXPECT_TRUE(bench.answers[2].ids.empty());
}

TEST(Brain, AnAbortedAnswerKeepsTheTextItHad) {
  Bench bench({.tokenizer = &sim::test_tokenizer()});
  bench.submit(1, prompt(8), 40);
  for (int i = 0; i < 6; ++i) bench.turn();
  bench.abort(1);
  EXPECT_EQ(bench.reason(1), FinishReason::kAbort);
  EXPECT_FALSE(bench.answers[1].text.empty());
}

}  // namespace
}  // namespace levada::sched
