#include <gtest/gtest.h>

#include <algorithm>

#include "sched/brain_support_test.h"

namespace levada::sched {
namespace {

Options always_largest(const char* algorithm = "auto") {
  Options options;
  options.speculative_algorithm = algorithm;
  options.speculative_adaptive = false;
  return options;
}

struct SpeculatingBench : Bench {
  explicit SpeculatingBench(Scene scene = {.options = always_largest()}, std::int32_t block = 5) : Bench(scene) {
    use(1, block);
  }
  void use(std::uint32_t version, std::int32_t block = 5) {
    brain.use_draft({core::DraftVersion{version}, "draft", block}, [this] { ++swaps_done; });
  }
  // Plans and computes one step; what the first slice of the plan was.
  core::PlanSlice step() {
    auto plan = brain.next_plan();
    EXPECT_NE(plan, nullptr);
    const core::PlanSlice slice = plan->slices.front();
    model.submit(std::move(plan));
    model.compute_one();
    collect();
    return slice;
  }
  int swaps_done = 0;
};

Bench::Answer plain_answer(core::Request request) {
  Bench plain({.options = always_largest("none")});
  plain.submit(std::move(request));
  plain.run_until_idle();
  return plain.answers[1];
}

core::Request with_seed(std::uint64_t id, std::uint64_t seed, std::int32_t max_new) {
  core::Request request = Bench::greedy(id, prompt(20), max_new);
  request.sampling.seed = seed;
  return request;
}

TEST(Speculation, AnAnswerIsThatOfPlainDecodingInFewerSteps) {
  SpeculatingBench bench;
  bench.submit(1, prompt(20), 60);
  bench.run_until_idle();
  const Bench::Answer& answer = bench.answers[1];
  EXPECT_EQ(answer.ids, plain_answer(Bench::greedy(1, prompt(20), 60)).ids);
  EXPECT_GT(answer.speculation.accepted, 30);
  EXPECT_EQ(answer.speculation.steps + answer.speculation.accepted, 60 - 1) << "the first token is the prefill's";
  EXPECT_LT(answer.speculation.accepted, answer.speculation.drafts) << "the script drafts wrongly now and then";
  bench.expect_all_returned();
}

// What an EAGLE-3 draft writes for a token is a function of the next one, too.
TEST(Speculation, AHitFixesTheTokenBehindItsLastSlotWhereTheDraftsPlanesNeedIt) {
  for (const bool of_next_token : {false, true}) {
    SpeculatingBench bench({.options = always_largest(), .of_next_token = of_next_token});
    std::vector<Token> first = prompt(25), second = prompt(25);
    second[20] = first[20] == 7 ? 8 : 7;
    bench.submit(1, first, 20);
    bench.run_until_idle();
    bench.submit(2, second, 20);  // the model checks what its draft reads
    bench.run_until_idle();
    EXPECT_EQ(bench.answers[2].cached_tokens, of_next_token ? 16 : 20);
    bench.submit(3, first, 20);
    bench.run_until_idle();
    EXPECT_EQ(bench.answers[3].cached_tokens, 24);
    std::vector<Token> longer = first;
    longer.insert(longer.end(), bench.answers[1].ids.begin(), bench.answers[1].ids.end());
    bench.submit(4, longer, 20);  // 45 tokens, of which 44 have been computed
    bench.run_until_idle();
    EXPECT_EQ(bench.answers[4].cached_tokens, 44);
    EXPECT_EQ(bench.answers[4].ids, plain_answer(Bench::greedy(1, longer, 20)).ids);
    EXPECT_GT(bench.answers[4].speculation.accepted, 5);
    bench.expect_all_returned();
  }
}

// A chunk that does not end the prompt says what follows it.
TEST(Speculation, ADraftOfNextTokensReadsChunkedPromptsAndSwapsKeepTheHits) {
  Scene scene{.options = always_largest(), .of_next_token = true};
  scene.options.chunked_prefill_size = 8;
  SpeculatingBench bench(scene);
  bench.submit(1, prompt(50), 30);
  bench.run_until_idle();
  EXPECT_GT(bench.answers[1].speculation.accepted, 10);
  bench.use(2);
  bench.submit(2, prompt(50), 30);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[2].cached_tokens, 48) << "the target's hit outlives the swap";
  EXPECT_EQ(bench.answers[2].ids, plain_answer(Bench::greedy(1, prompt(50), 30)).ids);
  EXPECT_GT(bench.answers[2].speculation.accepted, 10);
}

TEST(Speculation, B24RowsOfAStepAreTheAcceptedOnesAndOneMoreOfEachRequestsOwn) {
  SpeculatingBench bench;
  for (std::uint64_t id : {1, 2}) {
    core::Request request = Bench::greedy(id, prompt(10, static_cast<Token>(id * 30)), 40);
    request.hidden = core::HiddenWish::kAll;
    request.logprobs.emplace().top = 2;
    bench.submit(request);
  }
  bench.run_until_idle();
  EXPECT_NE(bench.answers[1].speculation.accepted, bench.answers[2].speculation.accepted) << "mixed acceptance";
  for (std::uint64_t id : {1, 2}) {
    core::Request request = Bench::greedy(1, prompt(10, static_cast<Token>(id * 30)), 40);
    request.hidden = core::HiddenWish::kAll;
    request.logprobs.emplace().top = 2;
    const Bench::Answer expected = plain_answer(request);
    const Bench::Answer& answer = bench.answers[id];
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.hidden, expected.hidden);
    EXPECT_EQ(answer.hidden.size(), 10u + 40 - 1);
    ASSERT_EQ(answer.logprobs.size(), 40u);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(answer.logprobs[i].logprob, expected.logprobs[i].logprob);
  }
}

TEST(Speculation, B45TokensAcceptedPastTheStopAreNoCacheKey) {
  const std::vector<Token> plain = plain_answer(Bench::greedy(1, prompt(18), 60)).ids;
  SpeculatingBench bench({.page_size = 4, .options = always_largest()}, 9);
  core::Request request = Bench::greedy(1, prompt(18), 60);
  const std::size_t stop = 6;  // lies inside the block that drafted it
  request.sampling.stop_token_ids = {plain[stop]};
  bench.submit(request);
  bench.run_until_idle();
  const std::vector<Token> answer = bench.answers[1].ids;
  ASSERT_EQ(answer, std::vector<Token>(plain.begin(), plain.begin() + stop + 1));
  // Turn two: all that was written of turn one is a hit, to the page.
  std::vector<Token> next = prompt(18);
  next.insert(next.end(), answer.begin(), answer.end());
  const auto known = static_cast<std::int32_t>(next.size());
  next.insert(next.end(), {1, 2, 3});
  bench.submit(2, next, 4);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[2].cached_tokens, (known - 1) / 4 * 4) << "the last token's KV may not be written";
  EXPECT_EQ(bench.brain.snapshot().cached_pages, (static_cast<std::int32_t>(next.size()) + 3) / 4)
      << "nothing stands under a key that nobody can produce";
  bench.expect_all_returned();
}

TEST(Speculation, B04WhatIsRestoredFromTheCacheWithoutDraftStateIsMasked) {
  SpeculatingBench bench;
  bench.use(0);
  bench.submit(1, prompt(40), 1);
  bench.run_until_idle();
  bench.use(7);
  bench.submit(2, prompt(43), 30);
  const core::PlanSlice first = bench.step();
  EXPECT_EQ(first.range.first, 40);
  EXPECT_EQ(first.draft_from, 40) << "the draft starts to see where its own numbers start";
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[2].cached_tokens, 40);
  EXPECT_GT(bench.answers[2].speculation.accepted, 15);
}

TEST(Speculation, B44AnotherDraftNeverReadsWhatTheOldOneLeftAndTheTargetsHitsSurvive) {
  SpeculatingBench bench;
  bench.submit(1, prompt(40), 50);
  for (int i = 0; i < 4; ++i) bench.turn();
  bench.use(2);  // in flight
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].ids, plain_answer(Bench::greedy(1, prompt(40), 50)).ids);
  bench.submit(2, prompt(43), 10);
  const core::PlanSlice first = bench.step();
  EXPECT_EQ(first.range.first, 40);
  EXPECT_EQ(first.draft_from, 40);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[2].ids, plain_answer(Bench::greedy(1, prompt(43), 10)).ids) << "as a fresh server";
}

TEST(Speculation, AfterARollbackTheOldDraftReadsItsOwnPagesAgain) {
  SpeculatingBench bench;
  bench.submit(1, prompt(40), 1);
  bench.run_until_idle();
  bench.use(2);
  bench.use(1);
  bench.submit(2, prompt(43), 10);
  EXPECT_EQ(bench.step().draft_from, 0);
  bench.run_until_idle();
}

TEST(Speculation, ASwapIsDoneWhenNoStepInFlightNamesTheOldDraft) {
  SpeculatingBench bench;
  EXPECT_EQ(bench.swaps_done, 1) << "nothing was in flight";
  bench.submit(1, prompt(8), 20);
  bench.plan();
  bench.use(2);
  EXPECT_EQ(bench.swaps_done, 1);
  bench.model.compute_one();
  EXPECT_EQ(bench.swaps_done, 2);
  bench.run_until_idle();
}

TEST(Speculation, NobodyGoesBackForAGuess) {
  // Two requests that just fit: there is no page for anybody's drafts beyond their last tokens.
  SpeculatingBench bench({.page_size = 4, .total_pages = 10, .options = always_largest()});
  bench.submit(1, prompt(10), 10);
  bench.submit(2, prompt(10, 99), 10);
  bench.run_until_idle();
  EXPECT_EQ(bench.brain.snapshot().retractions, 0u);
  EXPECT_EQ(bench.answers[1].ids, plain_answer(Bench::greedy(1, prompt(10), 10)).ids);
  bench.expect_all_returned();
}

TEST(Speculation, AStepVerifiesNoMoreThanTheExecutorTakes) {
  Scene scene{.options = always_largest()};
  scene.options.max_running_requests = 18;
  scene.max_samples = 18;
  SpeculatingBench bench(scene, 9);
  for (std::uint64_t id = 1; id <= 8; ++id) bench.submit(id, prompt(10, static_cast<Token>(id * 20)), 30);
  std::size_t most = 0;
  while (auto plan = bench.brain.next_plan()) {
    most = std::max(most, plan->samples.size());
    auto proposed = static_cast<std::int32_t>(plan->slices.size());
    for (const core::PlanSlice& slice : plan->slices) proposed += slice.propose;
    EXPECT_LE(proposed, 18);
    bench.model.submit(std::move(plan));
    bench.model.compute_one();
    bench.collect();
  }
  EXPECT_LE(most, 18u);
  EXPECT_GT(most, 12u);
  for (std::uint64_t id = 1; id <= 8; ++id)
    EXPECT_EQ(bench.answers[id].ids, plain_answer(Bench::greedy(1, prompt(10, static_cast<Token>(id * 20)), 30)).ids);
}

TEST(Speculation, ARequestThatMeasuresHasAllDraftsVerifiedWhateverThePaceSays) {
  for (const bool full : {false, true}) {
    SpeculatingBench bench({.options = Options()}, 8);  // adaptive: where nothing is known the first blocks are small
    core::Request request = Bench::greedy(1, prompt(20), 60);
    request.sampling.spec_full_blocks = full;
    bench.submit(std::move(request));
    EXPECT_EQ(bench.step().propose == 7, full);
    EXPECT_EQ(bench.step().drafts == 7, full);
    bench.run_until_idle();
    EXPECT_EQ(bench.answers[1].ids, plain_answer(Bench::greedy(1, prompt(20), 60)).ids);
  }
}

TEST(Speculation, OneThatDoesNotSpeculateSharesTheSteps) {
  SpeculatingBench bench;
  bench.submit(1, prompt(10), 40);
  bench.turn();
  bench.submit(2, prompt(10, 77), 1);
  core::Request constrained = Bench::greedy(3, prompt(12, 50), 20);
  constrained.sampling.frequency_penalty = 0.5f;
  constrained.sampling.min_new_tokens = 9;
  constrained.guide = std::make_shared<sim::ScriptedGuide>();
  bench.submit(constrained);
  bench.run_until_idle();
  constrained.id = RequestId{1};
  constrained.guide = std::make_shared<sim::ScriptedGuide>();
  EXPECT_EQ(bench.answers[3].ids, plain_answer(constrained).ids);
  EXPECT_EQ(bench.answers[1].ids, plain_answer(Bench::greedy(1, prompt(10), 40)).ids);
}

TEST(Speculation, WithoutADraftNothingIsSpentUntilTheTextRepeats) {
  Bench bench({.options = always_largest("NGRAM")});
  bench.submit(with_seed(1, 1, 30));
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].speculation.drafts, 0);
  EXPECT_EQ(bench.answers[1].speculation.steps, 29);
  bench.submit(with_seed(2, 4, 120));  // the script forgets: its answer goes round in circles
  bench.run_until_idle();
  EXPECT_GT(bench.answers[2].speculation.accepted, 60);
  EXPECT_EQ(bench.answers[2].ids, plain_answer(with_seed(1, 4, 120)).ids);
}

TEST(Speculation, WhereTheTextRepeatsNGramsStandInForTheDraft) {
  SpeculatingBench bench;
  bench.submit(with_seed(1, 4, 120));
  bool drafts_without_proposals = false;
  while (!bench.brain.idle()) {
    const core::PlanSlice slice = bench.step();
    drafts_without_proposals = drafts_without_proposals || (slice.drafts > 0 && slice.propose == 0);
  }
  EXPECT_TRUE(drafts_without_proposals) << "a step of the draft is saved";
  EXPECT_EQ(bench.answers[1].ids, plain_answer(with_seed(1, 4, 120)).ids);
}

TEST(Speculation, AForeignProposalIsNoToken) {
  // A draft may answer anything: ids that don't exist are dropped, the answer stays.
  SpeculatingBench bench;
  bench.model.set_result_sink([&](core::StepResult result) {
    for (Token& token : result.proposed) token = kVocab + 5;
    bench.brain.apply(result);
  });
  bench.submit(1, prompt(20), 20);
  bench.run_until_idle();
  EXPECT_EQ(bench.answers[1].ids, plain_answer(Bench::greedy(1, prompt(20), 20)).ids);
  EXPECT_EQ(bench.answers[1].speculation.drafts, 0);
}

}  // namespace
}  // namespace levada::sched
