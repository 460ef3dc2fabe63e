// The producer's half of the fault table (spec §7.2): one whole run per fault, in one thread, to its clean end.
#include <gtest/gtest.h>

#include <random>

#include "producer/test_run.h"
#include "support/instrumented.h"

namespace levada::producer {
namespace {

// Of random faults; an instrumented build has time for a tenth.
constexpr unsigned kHistories = test::kInstrumented ? 30 : 300;

using State = fanout::EntryState;

// The next `count` capture calls misbehave like this.
std::function<ServerFault()> times(int count, ServerFault fault) {
  return [count, fault]() mutable { return count-- > 0 ? fault : ServerFault::kNone; };
}

TEST(FanoutRun, ARunWithoutFaultsCapturesEachSampleOnceAndLeavesNothing) {
  TestRun run({});
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
  EXPECT_EQ(run.servers[0]->captures(), 8);
}

TEST(FanoutRun, I14ThreeConsumersOfDifferentPaceEachSeeTheirSoloRunsSequence) {
  TestRunShape shape;
  shape.samples = 12;
  shape.consumers = {{"a", 2, 0, 5, 4, 4}, {"b", 3, 1, 5, 4, 6}, {"c", 4, 2, 7, 4, 8}};
  shape.max_live_refs = 10;
  TestRun run(shape);
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, I7EveryAttemptHasAFreshExtraKey) {
  TestRun run({});
  run.servers[0]->fault = times(2, ServerFault::kReplyLost);
  ASSERT_TRUE(run.run_to_end());
  std::vector<std::string> keys = run.servers[0]->extra_keys();
  EXPECT_GT(keys.size(), 8u);
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
}

TEST(FanoutRun, F1AReplyLostAfterTheWriteIsAnsweredFromTheJournalUnderTheSameGeneration) {
  TestRun run({});
  run.servers[0]->fault = times(1, ServerFault::kReplyLost);
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
  EXPECT_EQ(run.servers[0]->captures(), 8);  // nothing was captured twice
}

TEST(FanoutRun, F1ARequestThatNeverArrivedIsSentAgain) {
  TestRun run({});
  run.servers[0]->fault = times(2, ServerFault::kRequestLost);
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, F2T11ASurvivorTakesOverWhatADeadServerHad) {
  TestRunShape shape;
  shape.servers = 2;
  TestRun run(shape);
  ASSERT_TRUE(run.workers[0]->step().ok());  // some samples lie in server 0 …
  run.servers[0]->die();                     // … and go with it
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
  EXPECT_EQ(run.watches[0]->state(), ServerWatch::State::kGone);
  EXPECT_GE(run.servers[1]->captures(), 8);
}

TEST(FanoutRun, F3AServerRestartedOnItsPortLosesItsObjectsAndNoWrongByteIsRead) {
  TestRun run({});
  ASSERT_TRUE(run.workers[0]->step().ok());
  run.servers[0]->restart();
  ASSERT_TRUE(run.watch(0).ok());
  EXPECT_EQ(run.registry().snapshot().entries.at("ready"), 0);
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, F3ARestartThatOnlyTheNextCaptureRevealsIsToldBeforeAnythingIsAdopted) {
  TestRun run({});
  ASSERT_TRUE(run.workers[0]->step().ok());
  const std::uint64_t old_life = run.servers[0]->arena()->incarnation();
  run.servers[0]->restart();
  ASSERT_TRUE(run.workers[0]->step().ok());
  for (std::int64_t p = 0; p < 8; ++p) {
    const auto& row = run.registry().state().entry(p).row;
    if (row.state != State::kReady) continue;
    EXPECT_NE(row.ref->incarnation, old_life);
  }
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, F3AServerThatComesBackWithItsStoreElsewhereLosesTheOldOnesRefs) {
  TestRun run({});
  ASSERT_TRUE(run.workers[0]->step().ok());
  run.servers[0]->restart();
  run.servers[0]->real_store_url = "tcp://another-port";
  ASSERT_TRUE(run.watch(0).ok());
  EXPECT_EQ(run.registry().snapshot().entries.at("ready"), 0);
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, F5AnErrorRowFailsItsOwnTaskAloneAndIsTriedAgainUnderTheNextGeneration) {
  TestRun run({});
  run.servers[0]->fault = times(1, ServerFault::kErrorRow);
  ASSERT_TRUE(run.workers[0]->step().ok());
  EXPECT_EQ(run.registry().entry(0), State::kReady);
  EXPECT_EQ(run.registry().entry(1), State::kReady);
  EXPECT_NE(run.registry().entry(2), State::kReady);
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
  EXPECT_GE(run.registry().state().entry(2).row.generation, 2);
}

// One bad row of a kind that trying again cannot mend.
void expect_terminal(ServerFault fault, const std::string& said) {
  TestRun run({});
  run.servers[0]->fault = times(1, fault);
  const auto step = run.workers[0]->step();
  ASSERT_FALSE(step.ok());
  EXPECT_NE(step.status().message().find(said), std::string::npos) << step.status().to_string();
  EXPECT_NE(step.status().message().find("run:canonical-prompt-"), std::string::npos) << "the sample is named";
  EXPECT_EQ(run.registry().entry(0), State::kReady) << "its neighbours are adopted";
  EXPECT_EQ(run.registry().entry(2), State::kFailed);
  // The objects of the bad row go.
  ASSERT_TRUE(run.registry().call(fanout::AbortRequest{"contract"}).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(run.remover->step().ok());
  EXPECT_EQ(run.servers[0]->arena()->stats().used_bytes, 0u);
}

TEST(FanoutRun, F6RowsOfAnotherLengthAreTerminalAndRemoved) {
  expect_terminal(ServerFault::kShortRows, "hidden_states has 3 rows for a prompt of 4 tokens");
}
TEST(FanoutRun, F7OtherLayersAreTerminalAndRemoved) {
  expect_terminal(ServerFault::kWrongLayers, "aux_layer_ids is [2,1], wanted [1,2]");
}
TEST(FanoutRun, F7AMissingNameIsTerminalAndRemoved) {
  expect_terminal(ServerFault::kMissingName, "feature loss_mask is missing");
}
TEST(FanoutRun, Q12AServerThatDoesNotCaptureIsTerminal) {
  expect_terminal(ServerFault::kNoResult, "the server does not capture");
}
TEST(FanoutRun, Q12AHopelessErrorIsTerminal) { expect_terminal(ServerFault::kHopelessRow, "the arena is full"); }

// One row that cannot be believed: nothing of the reply is.
void expect_nothing_adopted(ServerFault fault) {
  TestRun run({});
  run.servers[0]->fault = times(1, fault);
  const auto step = run.workers[0]->step();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(*step, CaptureWorker::Step::kFailed);
  EXPECT_EQ(run.registry().snapshot().entries.at("ready"), 0);
  EXPECT_FALSE(run.watches[0]->is_up());
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, F8AMalformedRowFailsTheCallAndNothingIsAdopted) { expect_nothing_adopted(ServerFault::kMalformedRow); }
TEST(FanoutRun, F8ARowOfAnotherSampleFailsTheCallAndNothingIsAdopted) {
  expect_nothing_adopted(ServerFault::kForeignRow);
}
TEST(FanoutRun, F8AMissingRowFailsTheCallAndNothingIsAdopted) { expect_nothing_adopted(ServerFault::kFewRows); }
TEST(FanoutRun, Q1AnHttpErrorFailsTheCallAndNothingIsAdopted) { expect_nothing_adopted(ServerFault::kRefused); }

TEST(FanoutRun, F9T12APoisonedPromptEndsAfterItsAttemptsAndTheRunFailsVisibly) {
  TestRunShape shape;
  shape.samples = 2;
  shape.consumers = {{"a", 1, 0, 1, 1, 1}};
  TestRun run(shape);
  run.servers[0]->fault = [] { return ServerFault::kErrorRow; };
  Result<CaptureWorker::Step> step = CaptureWorker::Step::kIdle;
  int calls = 0;
  for (; step.ok() && calls < 100; ++calls) {
    step = run.workers[0]->step();
    (void)run.remover->step();
    run.clock.advance_us(1'000'000);
  }
  ASSERT_FALSE(step.ok());
  EXPECT_NE(step.status().message().find("cannot be captured: the arena is full"), std::string::npos);
  EXPECT_EQ(run.servers[0]->extra_keys().size(), 5u);  // one attempt and four retries
}

TEST(FanoutRun, F9ASampleThatIsRefusedForGoodIsSkippedByEveryConsumerAndCounted) {
  TestRunShape shape;
  shape.consumers = {{"a", 2, 0, 5, 4, 4}, {"b", 4, 0, 7, 4, 8}};
  shape.skip_failed = 1;
  TestRun run(shape);
  run.servers[0]->fault = times(1, ServerFault::kHopelessRow);  // the third of the first batch
  ASSERT_TRUE(run.run_to_end());
  const auto end = run.registry().snapshot();
  EXPECT_EQ(end.status, fanout::RunStatus::kCompleted) << end.fail_reason;
  EXPECT_EQ(end.entries.at("absent"), 8);
  EXPECT_EQ(end.counters.at("skipped_samples"), 1);
  EXPECT_EQ(end.counters.at("capture_count"), 7 + end.counters.at("recapture_count"));
  for (const auto& trainer : run.consumers) {
    EXPECT_EQ(trainer->trained, (std::vector<std::int64_t>{0, 1, 3, 4, 5, 6, 7}));
    EXPECT_EQ(trainer->skipped, std::vector<std::int64_t>{2});
    EXPECT_EQ(trainer->feed->cursor(), 8) << "cursors and steps count it all the same";
  }
  EXPECT_EQ(run.servers[0]->arena()->stats().used_bytes, 0u);
}

TEST(FanoutRun, F9OfACallThatIsRefusedAsAWholeTheSampleAtFaultAloneIsBlamed) {
  TestRunShape shape;
  shape.skip_failed = 1;
  TestRun run(shape);
  run.servers[0]->unknown_token = 11;  // in position 1, the middle of the first batch
  ASSERT_TRUE(run.run_to_end());
  EXPECT_EQ(run.registry().snapshot().status, fanout::RunStatus::kCompleted);
  EXPECT_EQ(run.consumers[0]->skipped, std::vector<std::int64_t>{1});
  EXPECT_EQ(run.consumers[0]->trained, (std::vector<std::int64_t>{0, 2, 3, 4, 5, 6, 7}));

  TestRun strict({});
  strict.servers[0]->unknown_token = 11;
  const auto step = strict.workers[0]->step();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.status().message().find(strict.plan().sources[1].sample_id), 0u) << step.status().to_string();
  EXPECT_EQ(strict.registry().snapshot().entries.at("ready"), 2) << "the others of its call";
}

TEST(FanoutRun, F7WhatBreaksTheContractIsNeverSkipped) {
  TestRunShape shape;
  shape.skip_failed = 8;
  TestRun run(shape);
  run.servers[0]->fault = times(1, ServerFault::kWrongLayers);
  const auto step = run.workers[0]->step();
  ASSERT_FALSE(step.ok());
  EXPECT_NE(step.status().message().find("run:"), std::string::npos) << "names the sample";
  EXPECT_NE(step.status().message().find("aux_layer_ids"), std::string::npos) << "and the cause";
}

TEST(FanoutRun, F45ARefusedTokenEndsTheRunAtOnce) {
  TestRun run({});
  run.servers[0]->fault = times(1, ServerFault::kUnauthorized);
  const auto step = run.workers[0]->step();
  EXPECT_EQ(step.status().code(), StatusCode::kUnauthenticated);
}

TEST(FanoutRun, Q14ThreeFailedCallsInARowDropAServerUntilItBeginsANewLife) {
  TestRunShape shape;
  shape.servers = 2;
  TestRun run(shape);
  run.servers[0]->fault = [] { return ServerFault::kMalformedRow; };
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(run.watches[0]->is_given_up());
    ASSERT_TRUE(run.watch(0).ok());
    run.clock.advance_us(1'000'000);
    ASSERT_TRUE(run.workers[0]->step().ok());
  }
  EXPECT_EQ(run.watches[0]->state(), ServerWatch::State::kDropped);
  ASSERT_TRUE(run.watch(0).ok());
  EXPECT_EQ(run.watches[0]->state(), ServerWatch::State::kDropped) << "answering a question is not enough";
  const std::int64_t calls = run.workers[0]->capture_calls();
  ASSERT_TRUE(run.workers[0]->step().ok());
  EXPECT_EQ(run.workers[0]->capture_calls(), calls) << "it claims nothing more";
  run.servers[0]->restart();
  run.servers[0]->fault = nullptr;
  ASSERT_TRUE(run.watch(0).ok());
  EXPECT_TRUE(run.watches[0]->is_up());
  ASSERT_TRUE(run.run_to_end());
  run.expect_clean_end();
}

TEST(FanoutRun, F10AProducerThatCrashedAtAnyPointGoesOnAfterItsRestart) {
  // Cut after the n-th call that reached the registry, for every n of a whole run.
  for (int cut = 1; cut < 60; ++cut) {
    TestRun run({});
    int calls = 0;
    run.registry().fault = [&](const fanout::Request& request) {
      const bool is_producers = std::visit([](const auto& r) { return std::decay_t<decltype(r)>::kRole; }, request) ==
                                fanout::Role::kProducer;
      return is_producers && ++calls == cut ? consumer::TestRegistry::Fault::kReplyLost
                                            : consumer::TestRegistry::Fault::kNone;
    };
    // The lost reply is the last thing that the old process did.
    bool has_crashed = false;
    run.pause.on_wait = [&] {
      if (calls >= cut && !has_crashed) {
        has_crashed = true;
        run.registry().restart();
      }
    };
    ASSERT_TRUE(run.run_to_end()) << "cut " << cut;
    run.expect_clean_end();
    if (testing::Test::HasFailure()) FAIL() << "cut " << cut;
  }
}

TEST(FanoutRun, F15F16ConsumersThatDieAtAnyStepReplayFromTheirCheckpoints) {
  for (int death = 1; death < 20; ++death) {
    TestRun run({});
    auto& trainer = *run.consumers[0];
    int steps = 0;
    run.registry().fault = [&](const fanout::Request& request) {
      const bool is_ack = std::holds_alternative<fanout::AdvanceRequest>(request) ||
                          std::holds_alternative<fanout::CheckpointRequest>(request);
      return is_ack && ++steps == death ? consumer::TestRegistry::Fault::kReplyLost
                                        : consumer::TestRegistry::Fault::kNone;
    };
    for (int turn = 0; turn < 3; ++turn) {
      ASSERT_TRUE(run.workers[0]->step().ok());
      while (trainer.fetch()) {
      }
      (void)trainer.train();
      (void)run.remover->step();
    }
    trainer.start();
    ASSERT_TRUE(run.run_to_end()) << "death " << death;
    run.expect_clean_end();
    if (testing::Test::HasFailure()) FAIL() << "death " << death;
  }
}

TEST(FanoutRun, F23AnObjectThatIsStillReadIsAskedForAgainWithoutAProbe) {
  TestRun run({});
  ASSERT_TRUE(run.workers[0]->step().ok());
  auto& trainer = *run.consumers[0];
  while (trainer.fetch()) {
  }
  const std::string key = core::object_key("store", run.plan().sources[0].sample_id, 1, kHiddenStates);
  auto view = run.servers[0]->arena()->view(key);
  ASSERT_TRUE(view.ok());
  ASSERT_TRUE(trainer.train());
  EXPECT_EQ(*run.remover->step(), RemovalWorker::Step::kWorked);
  EXPECT_EQ(run.registry().entry(0), State::kEvicting) << "live until nobody reads it";
  view->release();
  run.clock.advance_us(1'000'000);
  EXPECT_EQ(*run.remover->step(), RemovalWorker::Step::kWorked);
  EXPECT_EQ(run.registry().entry(0), State::kAbsent);
}

TEST(FanoutRun, F24AnObjectThatIsGoneAlreadyCountsAsRemoved) {
  TestRun run({});
  ASSERT_TRUE(run.workers[0]->step().ok());
  for (const char* name : {kHiddenStates, kInputIds, kLossMask}) {
    run.servers[0]->arena()->remove(core::object_key("store", run.plan().sources[0].sample_id, 1, name));
  }
  ASSERT_TRUE(run.registry().call(fanout::AbortRequest{"end"}).ok());
  ASSERT_TRUE(run.remover->step().ok());
  EXPECT_EQ(run.registry().entry(0), State::kAbsent);
}

// T16: seeded histories of everything at once.
TEST(FanoutRun, T16RandomFaultsNeverChangeWhatIsTrainedNorLeaveAnythingBehind) {
  constexpr ServerFault kFaults[] = {ServerFault::kRequestLost,  ServerFault::kReplyLost,  ServerFault::kErrorRow,
                                     ServerFault::kMalformedRow, ServerFault::kForeignRow, ServerFault::kFewRows,
                                     ServerFault::kRefused};
  for (unsigned seed = 0; seed < kHistories; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
    TestRunShape shape;
    shape.samples = 6 + random() % 8;
    shape.servers = 1 + random() % 3;
    shape.consumers = {{"a", 1, 0, 3, 2, 3}, {"b", 2, 1, 5, 4, 4}};
    shape.max_live_refs = 4 + random() % 12;
    shape.max_capture_retries = 1'000'000;
    TestRun run(shape);
    for (auto& server : run.servers) {
      server->fault = [&] { return chance(20) ? kFaults[random() % std::size(kFaults)] : ServerFault::kNone; };
    }
    run.registry().fault = [&](const fanout::Request&) {
      if (!chance(6)) return consumer::TestRegistry::Fault::kNone;
      return chance(50) ? consumer::TestRegistry::Fault::kReplyLost : consumer::TestRegistry::Fault::kRequestLost;
    };
    for (int turn = 0; turn < 120; ++turn) {
      if (chance(3)) run.registry().restart();
      for (auto& server : run.servers) {
        if (chance(2)) server->restart();
      }
      const std::size_t s = random() % run.servers.size();
      (void)run.watch(static_cast<std::int64_t>(s));
      const auto step = run.workers[s]->step();
      ASSERT_TRUE(step.ok()) << "seed " << seed << ": " << step.status().to_string();
      auto& trainer = *run.consumers[random() % run.consumers.size()];
      if (chance(4)) trainer.start();
      (void)trainer.fetch();
      if (chance(70)) (void)trainer.train();
      if (chance(50)) {
        ASSERT_TRUE(run.remover->step().ok());
      }
      run.clock.advance_us(static_cast<std::int64_t>(random() % 3'000'000));
      if (chance(20)) {
        for (auto& each : run.consumers) (void)each->feed->beat();
      }
    }
    run.registry().fault = nullptr;
    for (auto& server : run.servers) {
      server->fault = nullptr;
      server->restart();  // a server dropped for its failures comes back
    }
    ASSERT_TRUE(run.run_to_end(3000)) << "seed " << seed;
    run.expect_clean_end();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace levada::producer
