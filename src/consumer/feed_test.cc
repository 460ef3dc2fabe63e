// The Feed between a trainer and the registry: order, windows, losses, restarts and rewinds, stepped by the test; and once
// with its own threads.
#include "consumer/feed.h"

#include <gtest/gtest.h>

#include <set>

#include "consumer/test_samples.h"

namespace levada::consumer {
namespace {

using Fetch = Feed::Fetch;

// One consumer of a run of eight samples, two a step.
class FeedTest : public testing::Test {
 protected:
  FeedTest() : registry_(small_run(card_, {spec_}, 16), clock_) {
    arena_ = *store::Arena::create({.bytes = 1 << 18, .max_objects = 256, .prefault = false}, clock_);
    start("first process");
  }

  // A process of this consumer begins.
  void start(const std::string& nonce) {
    feed_.reset();
    reader_.reset();
    pause_.start_again();
    session_ =
        std::make_unique<Session>(registration(card_, spec_, nonce), Session::Options{}, registry_, clock_, pause_);
    ASSERT_TRUE(session_->open().ok());
    reader_ = std::make_unique<SampleReader>(
        SampleReader::Options{}, card_,
        [this](const std::string&) -> Result<std::unique_ptr<store::ObjectStore>> {
          return std::unique_ptr<store::ObjectStore>(std::make_unique<store::LocalStore>(*arena_));
        },
        pause_);
    feed_ = std::make_unique<Feed>(Feed::Options{.idle_us = 5'000'000}, spec_, *session_, *reader_, clock_, pause_);
  }
  void capture() {
    while (capture_some(registry_, *arena_, card_, next_claim_++) > 0) {
    }
  }
  // Captures and fetches until a whole step is here, and takes it.
  std::vector<std::int64_t> take_step() {
    for (int i = 0; i < 50; ++i) {
      remove_all(registry_, *arena_, card_);
      capture();
      const Fetch fetched = feed_->fetch_step(0);
      if (fetched == Fetch::kFull || fetched == Fetch::kEnded || fetched == Fetch::kFailed) break;
    }
    auto samples = feed_->next(spec_.quantum);
    EXPECT_TRUE(samples.ok()) << samples.status().to_string();
    std::vector<std::int64_t> positions;
    if (!samples.ok()) return positions;
    for (const ReadSample* sample : *samples) {
      positions.push_back(sample->position);
      EXPECT_EQ(std::vector(sample->input_ids.begin(), sample->input_ids.end()), input_ids(sample->position));
    }
    return positions;
  }
  using Positions = std::vector<std::int64_t>;

  ManualClock clock_;
  ClockPause pause_{clock_};
  const RunCard card_ = small_card(8);
  const fanout::ConsumerSpec spec_{"a", 2, 0, 5, 4, 4};
  std::unique_ptr<store::Arena> arena_;
  TestRegistry registry_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<SampleReader> reader_;
  std::unique_ptr<Feed> feed_;
  std::int64_t next_claim_ = 1;
};

TEST_F(FeedTest, I12EverySampleComesOnceAndInOrderAndTheEndIsAnEmptyAnswer) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  Positions seen;
  for (std::int64_t step = 1; step <= 4; ++step) {
    for (const std::int64_t p : take_step()) seen.push_back(p);
    ASSERT_TRUE(feed_->stepped(step).ok());
    EXPECT_EQ(registry_.cursor(0), 2 * step);
  }
  EXPECT_EQ(seen, (Positions{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kEnded);
  const auto end = feed_->next(2);
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end->empty());
  const auto skipped = feed_->complete(false);
  ASSERT_TRUE(skipped.ok()) << skipped.status().to_string();
  EXPECT_EQ(*skipped, 0);
}

// "Not yet", "ended" and "failed" are three answers.
TEST_F(FeedTest, B48NothingYetIsNeitherAnEndNorAFailure) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kWaiting);
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kWaiting);
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  ASSERT_TRUE(registry_.call(fanout::AbortRequest{"the producer crashed"}).ok());
  EXPECT_EQ(feed_->stepped(1).code(), StatusCode::kAborted);
}

TEST_F(FeedTest, B48I35AFailedRunIsNeverACleanEnd) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  ASSERT_TRUE(registry_.call(fanout::AbortRequest{"the producer crashed"}).ok());
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kFailed);
  const auto next = feed_->next(2);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.status().code(), StatusCode::kAborted);
  EXPECT_NE(next.status().message().find("the producer crashed"), std::string::npos);
}

TEST(SkippingFeed, F09APositionThatCannotBeCapturedIsAStandInThatTeachesNothing) {
  ManualClock clock;
  ClockPause pause{clock};
  const RunCard card = small_card(4);
  const fanout::ConsumerSpec spec{"a", 2, 0, 3, 4, 4};
  auto arena = *store::Arena::create({.bytes = 1 << 16, .max_objects = 64, .prefault = false}, clock);
  fanout::RunConfig config = small_run(card, {spec}, 16);
  config.skip_failed = 2;
  TestRegistry registry(config, clock);
  Session session(registration(card, spec), {}, registry, clock, pause);
  ASSERT_TRUE(session.open().ok());
  const auto open = [&](const std::string&) -> Result<std::unique_ptr<store::ObjectStore>> {
    return std::unique_ptr<store::ObjectStore>(std::make_unique<store::LocalStore>(*arena));
  };
  SampleReader reader({}, card, open, pause);
  Feed feed({.idle_us = 1}, spec, session, reader, clock, pause);
  ASSERT_TRUE(feed.begin(0, "").ok());
  const auto claim = registry.call(fanout::ClaimRequest{"w", "server", 1, 2, 0});  // positions 0 and 1
  for (const fanout::CaptureOrder& order : claim->requests) {
    const fanout::FailCaptureRequest refused{order.source_index,  order.generation, order.nonce, "too long", false,
                                             fanout::Written::kNo};
    ASSERT_TRUE(registry.call(refused).ok());
  }
  EXPECT_EQ(feed.fetch_step(0), Fetch::kFetched);
  const auto samples = feed.next(2);
  ASSERT_TRUE(samples.ok());
  ASSERT_EQ(samples->size(), 2u) << "not an empty answer: that would be the end";
  for (const ReadSample* sample : *samples) {
    EXPECT_EQ(sample->hidden_states.size(), sample->input_ids.size() * static_cast<std::size_t>(card.aux_width()));
    EXPECT_EQ(std::vector(sample->loss_mask.begin(), sample->loss_mask.end()), std::vector<std::int64_t>(2, 0));
  }
  EXPECT_TRUE(feed.stepped(1).ok());
  EXPECT_EQ(feed.counts().skipped, 2);
  EXPECT_EQ(feed.cursor(), 2);
}

TEST_F(FeedTest, NoMoreThanMaxOutstandingIsFetched) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  capture();
  while (feed_->fetch_step(0) == Fetch::kFetched) {
  }
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kFull);
  EXPECT_EQ(feed_->counts().acquired, 4);
}

TEST_F(FeedTest, V4AnUnreadableSampleIsReportedAndComesAgainUnderANewGeneration) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  capture();
  arena_->remove("store/run:p1/g1/input_ids");
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kFetched);  // 0 was read, 1 was not
  EXPECT_EQ(feed_->counts().reported_lost, 1);
  remove_all(registry_, *arena_, card_);
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  EXPECT_EQ(registry_.state().entry(1).row.generation, 2);
  EXPECT_EQ(registry_.state().entry(0).row.generation, 1);
}

TEST_F(FeedTest, F3ARestartedServersSamplesAreCapturedAgain) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  capture();
  arena_ = *store::Arena::create({.bytes = 1 << 18, .max_objects = 256, .prefault = false}, clock_);
  start("its store client connects anew");
  ASSERT_TRUE(feed_->begin(0, "").ok());
  ASSERT_TRUE(registry_.call(fanout::ServerLostRequest{"local", arena_->incarnation()}).ok());
  remove_all(registry_, *arena_, card_);
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  EXPECT_EQ(feed_->counts().reported_lost, 0);  // nobody had to find out by reading
}

TEST_F(FeedTest, F19AReadPastItsLeaseIsThrownAwayAndDoneAgain) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  capture();
  // The reply takes so long that the margin before the lease's end is reached.
  registry_.on_call = [&](const fanout::Request& request) {
    if (std::holds_alternative<fanout::AcquireRequest>(request)) clock_.advance_us(26'000'000);
  };
  EXPECT_EQ(feed_->fetch_step(0), Fetch::kWaiting);
  EXPECT_EQ(feed_->counts().expired_reads, 1);
  EXPECT_EQ(feed_->counts().acquired, 0);
  registry_.on_call = nullptr;
  EXPECT_EQ(take_step(), (Positions{0, 1}));
}

TEST_F(FeedTest, HeartbeatsKeepTheLeasesOfASlowStep) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  for (int i = 0; i < 30; ++i) {
    clock_.advance_us(5'000'000);
    ASSERT_TRUE(feed_->beat().ok());
    remove_all(registry_, *arena_, card_);
  }
  EXPECT_EQ(registry_.entry(0), fanout::EntryState::kReady);
  EXPECT_TRUE(feed_->stepped(1).ok());
}

TEST_F(FeedTest, F12VerifiedSamplesOutliveARestartOfTheRegistryAndAreAcknowledgedAfterIt) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  registry_.restart();
  EXPECT_TRUE(feed_->stepped(1).ok());
  EXPECT_EQ(take_step(), (Positions{2, 3}));
  EXPECT_TRUE(feed_->stepped(2).ok());
  EXPECT_EQ(registry_.cursor(0), 4);
}

TEST_F(FeedTest, F12WhileTheRegistryIsDownVerifiedSamplesAreStillHandedOut) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  capture();
  while (feed_->fetch_step(0) == Fetch::kFetched) {
  }
  registry_.is_down = true;
  auto samples = feed_->next(2);
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ((*samples)[1]->position, 1);
  EXPECT_EQ(feed_->beat().code(), StatusCode::kUnavailable);
  pause_.on_wait = [&] { registry_.is_down = false; };
  EXPECT_TRUE(feed_->stepped(1).ok());
  EXPECT_EQ(registry_.cursor(0), 2);
}

TEST_F(FeedTest, F15ACrashBeforeTheAckReplaysFromTheCheckpoint) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  take_step();  // trained, never acknowledged: the process dies
  start("second process");
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
}

TEST_F(FeedTest, F15ACheckpointAheadOfItsAckIsAcknowledgedNotTrainedTwice) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  take_step();  // trained, checkpointed at step 1, never acknowledged
  start("second process");
  ASSERT_TRUE(feed_->begin(1, "/checkpoints/step1").ok());
  EXPECT_EQ(registry_.cursor(0), 2);
  EXPECT_EQ(take_step(), (Positions{2, 3}));
}

TEST_F(FeedTest, F16B47AcksAheadOfTheCheckpointAreTakenBackAndNoSampleIsSkipped) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  take_step();
  ASSERT_TRUE(feed_->checkpointed(1, "/checkpoints/step1").ok());
  ASSERT_TRUE(feed_->stepped(1).ok());
  take_step();
  ASSERT_TRUE(feed_->stepped(2).ok());  // and dies: step 2 is in no checkpoint
  remove_all(registry_, *arena_, card_);
  EXPECT_EQ(registry_.cursor(0), 4);
  start("second process");
  ASSERT_TRUE(feed_->begin(1, "/checkpoints/step1").ok());
  EXPECT_EQ(registry_.cursor(0), 2);
  EXPECT_EQ(take_step(), (Positions{2, 3}));
  ASSERT_TRUE(feed_->stepped(2).ok());
  EXPECT_EQ(take_step(), (Positions{4, 5}));
}

TEST_F(FeedTest, F16WithoutAnyCheckpointARunStartsAgainFromTheBeginning) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  take_step();
  ASSERT_TRUE(feed_->stepped(1).ok());
  start("second process");
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
}

TEST_F(FeedTest, F16ACheckpointThatWasNeverToldIsToldAtTheStart) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  take_step();
  ASSERT_TRUE(feed_->stepped(1).ok());  // then a stop: saved at step 1, the registry heard nothing of it
  start("second process");
  ASSERT_TRUE(feed_->begin(1, "/checkpoints/step1").ok());
  take_step();
  ASSERT_TRUE(feed_->stepped(2).ok());  // and a crash
  start("third process");
  ASSERT_TRUE(feed_->begin(1, "/checkpoints/step1").ok());
  EXPECT_EQ(take_step(), (Positions{2, 3}));
}

TEST_F(FeedTest, ACheckpointOfAnotherRunIsRefused) {
  EXPECT_EQ(feed_->begin(7, "/checkpoints/step7").code(), StatusCode::kFailedPrecondition);
}

TEST_F(FeedTest, ATailThatIsNoWholeStepIsSkippedAndCounted) {
  const RunCard card = small_card(5);
  TestRegistry registry(small_run(card, {spec_}, 16), clock_);
  Session session(registration(card, spec_), {}, registry, clock_, pause_);
  ASSERT_TRUE(session.open().ok());
  Feed feed({}, spec_, session, *reader_, clock_, pause_);
  ASSERT_TRUE(feed.begin(0, "").ok());
  for (std::int64_t step = 1; step <= 2; ++step) {
    for (std::int64_t claim = 1; claim <= 4; ++claim) capture_some(registry, *arena_, card, 10 * step + claim);
    while (feed.fetch_step(0) == Fetch::kFetched) {
    }
    ASSERT_EQ(feed.next(2)->size(), 2u);
    ASSERT_TRUE(feed.stepped(step).ok());
  }
  EXPECT_TRUE(feed.next(2)->empty());
  EXPECT_EQ(*feed.complete(false), 1);
}

// With its own threads and the real time: the trainer's thread meets only next(), confirm() and stepped().
TEST_F(FeedTest, ThreadsFetchAheadAndBeatWhileTheTrainerWorks) {
  SystemClock clock;
  StoppablePause pause;
  fanout::RunConfig run = small_run(card_, {spec_}, 16);
  run.times.heartbeat_us = 10'000;
  TestRegistry registry(run, clock);
  Session session(registration(card_, spec_), {}, registry, clock, pause);
  ASSERT_TRUE(session.open().ok());
  SampleReader reader(
      {}, card_,
      [this](const std::string&) -> Result<std::unique_ptr<store::ObjectStore>> {
        return std::unique_ptr<store::ObjectStore>(std::make_unique<store::LocalStore>(*arena_));
      },
      pause);
  Feed feed({}, spec_, session, reader, clock, pause);
  std::atomic<bool> stop{false};
  Thread producer("producer", [&] {
    for (std::int64_t claim = 1; !stop; ++claim) {
      capture_some(registry, *arena_, card_, claim, 1);
      remove_all(registry, *arena_, card_);
      ::usleep(200);
    }
  });
  feed.start_heartbeat();
  ASSERT_TRUE(feed.begin(0, "").ok());
  feed.start_fetching();
  Positions seen;
  std::set<std::int64_t> harmed_steps = {2, 4};  // the last one too, when all has been fetched already
  for (std::int64_t step = 1;;) {
    auto samples = feed.next(2);
    ASSERT_TRUE(samples.ok()) << samples.status().to_string();
    if (samples->empty()) break;
    const Positions positions = {samples->front()->position, samples->back()->position};
    const bool is_harmed = harmed_steps.erase(step) > 0;
    if (is_harmed) arena_->remove("store/run:p" + std::to_string(2 * step - 1) + "/g1/hidden_states");
    const auto confirmed = feed.confirm();
    ASSERT_TRUE(confirmed.ok()) << confirmed.status().to_string();
    EXPECT_EQ(*confirmed, !is_harmed);
    if (!*confirmed) continue;
    seen.insert(seen.end(), positions.begin(), positions.end());
    ASSERT_TRUE(feed.checkpointed(step, "/checkpoint").ok());
    ASSERT_TRUE(feed.stepped(step++).ok());
  }
  stop = true;
  EXPECT_EQ(seen, (Positions{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_TRUE(feed.complete(false).ok());
}

TEST_F(FeedTest, StopWakesATrainerThatWaits) {
  SystemClock clock;
  StoppablePause pause;
  Feed feed({}, spec_, *session_, *reader_, clock, pause);
  ASSERT_TRUE(feed.begin(0, "").ok());
  Thread stopper("stopper", [&] { feed.stop(); });
  EXPECT_EQ(feed.next(2).status().code(), StatusCode::kAborted);
}

// Samples that are used in the store's memory, where confirm() is asked before anything comes of them.
TEST_F(FeedTest, WhatIsStillThereIsConfirmed) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  EXPECT_TRUE(feed_->confirm().value());
  EXPECT_TRUE(feed_->stepped(1).ok());
}

TEST_F(FeedTest, L4ALeaseThatEndedBeforeTheLastUseGivesTheStepUpAndItsSamplesComeAgain) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  clock_.advance_us(26'000'000);  // of 30 s, of which 5 are the margin
  EXPECT_FALSE(feed_->confirm().value());
  EXPECT_EQ(registry_.cursor(0), 0);
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  EXPECT_TRUE(feed_->confirm().value());
  EXPECT_TRUE(feed_->stepped(1).ok());
  EXPECT_EQ(take_step(), (Positions{2, 3}));
  EXPECT_GE(feed_->counts().gone_back, 2);
}

TEST_F(FeedTest, AnObjectThatWasRemovedUnderItsStepGivesTheStepUp) {
  ASSERT_TRUE(feed_->begin(0, "").ok());
  EXPECT_EQ(take_step(), (Positions{0, 1}));
  const std::string key = "store/run:p1/g1/hidden_states";
  EXPECT_EQ(arena_->remove(key), store::RemoveOutcome::kStillRead);
  EXPECT_FALSE(feed_->confirm().value());
  EXPECT_EQ(take_step(), (Positions{0, 1})) << "position 0 was kept, position 1 is reported lost and captured anew";
  EXPECT_EQ(feed_->counts().reported_lost, 1);
  EXPECT_TRUE(feed_->confirm().value());
  EXPECT_TRUE(feed_->stepped(1).ok());
}

}  // namespace
}  // namespace levada::consumer
