#include "spec/pace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace levada::spec {
namespace {

// A machine: reads its weights in a time of 1, computes rows beside that until it is busy, and drafts if the step does.
struct Machine {
  double busy_rows = 16;    // rows that one reading of the weights hides
  double row_cost = 0.001;  // of each row, whatever else
  double draft_cost = 0.05;
  double seconds(std::int32_t requests, std::int32_t rows) const {
    return 0.01 * (std::max(1.0, rows / busy_rows) + row_cost * rows + (rows > requests ? draft_cost : 0));
  }
};

double expected_tokens(double acceptance, std::int32_t drafts) {
  double sum = 0;
  for (std::int32_t i = 0; i <= drafts; ++i) sum += std::pow(acceptance, i);
  return sum;
}

// `requests` requests that decode side by side, each draft right with the probability that `acceptance` gives for the step.
struct Decoding {
  Decoding(Machine m, std::int32_t requests, std::int32_t block, Pace::Options options = {})
      : machine(m), pace(options), tracks(static_cast<std::size_t>(requests)), most(block) {}

  // The drafts each request had.
  std::vector<std::int32_t> step(double acceptance) {
    const auto requests = static_cast<std::int32_t>(tracks.size());
    std::vector<std::int32_t> chosen;
    std::int32_t rows = requests;
    for (const Track& track : tracks) rows += chosen.emplace_back(pace.choose(track, most, requests));
    const double seconds = machine.seconds(requests, rows);
    pace.on_step(requests, rows, seconds * (1 + noise * uniform(random)));
    time += seconds;
    for (std::size_t i = 0; i < tracks.size(); ++i) {
      std::int32_t accepted = 0;
      while (accepted < chosen[i] && uniform(random) < acceptance) ++accepted;
      tokens += 1 + accepted;
      if (chosen[i] > 0) {
        tracks[i].on_verified(chosen[i], accepted);
        pace.on_verified(chosen[i], accepted);
      } else {
        tracks[i].on_plain_step();
      }
    }
    return chosen;
  }
  double rate(int steps, double acceptance) {
    const double tokens_before = tokens, time_before = time;
    for (int i = 0; i < steps; ++i) step(acceptance);
    return (tokens - tokens_before) / (time - time_before);
  }
  double plain_rate() const {
    const auto requests = static_cast<std::int32_t>(tracks.size());
    return requests / machine.seconds(requests, requests);
  }
  double best_rate(double acceptance) const {
    const auto requests = static_cast<std::int32_t>(tracks.size());
    double best = 0;
    for (std::int32_t drafts = 0; drafts <= most; ++drafts)
      best = std::max(
          best, requests * expected_tokens(acceptance, drafts) / machine.seconds(requests, requests * (1 + drafts)));
    return best;
  }

  Machine machine;
  Pace pace;
  std::vector<Track> tracks;
  std::int32_t most;
  double noise = 0;
  double tokens = 0, time = 0;
  std::mt19937_64 random{7};
  std::uniform_real_distribution<double> uniform;
};

TEST(Pace, WithoutAdaptationEveryStepVerifiesTheMostThereIs) {
  Decoding decoding({}, 4, 15, {.adaptive = false});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(decoding.step(0), (std::vector<std::int32_t>(4, 15)));
}

TEST(Pace, NothingToVerifyIsAPlainStep) {
  for (const bool adaptive : {false, true}) EXPECT_EQ(Pace({.adaptive = adaptive}).choose(Track(), 0, 1), 0);
}

TEST(Pace, WhereNothingIsKnownTheFirstBlockIsSmall) {
  for (const std::int32_t requests : {1, 4, 16}) EXPECT_EQ(Pace({}).choose(Track(), 15, requests), 1);
  EXPECT_EQ(Pace({}).choose(Track(), 15, 256), 0);
}

TEST(Pace, ADraftThatIsAlwaysRightReachesTheLargestBlockWithinAFewSteps) {
  for (const std::int32_t most : {7, 15}) {
    Decoding decoding({.busy_rows = 32}, 1, most);
    for (int i = 0; i < 5; ++i) decoding.step(1);
    int others = 0;  // what a plain step takes is wanted, too
    for (int i = 0; i < 200; ++i) others += decoding.step(1).front() == most ? 0 : 1;
    EXPECT_LE(others, 4);
  }
}

TEST(Pace, ADraftThatIsAlwaysRejectedCostsLessThanATwentiethOfTheTime) {
  for (const double busy_rows : {1.0, 2.0, 8.0, 64.0}) {
    for (const std::int32_t requests : {1, 4, 16}) {
      for (const double draft_cost : {0.0, 0.15, 0.3}) {
        Decoding decoding({.busy_rows = busy_rows, .draft_cost = draft_cost}, requests, 15);
        EXPECT_GT(decoding.rate(400, 0), 0.95 * decoding.plain_rate()) << busy_rows << " " << requests;
        EXPECT_GT(decoding.rate(4000, 0), 0.98 * decoding.plain_rate()) << busy_rows << " " << requests;
      }
    }
  }
}

TEST(Pace, PausesDoubleUpToALimitAndProbesAreSmall) {
  Decoding decoding({}, 1, 15);
  for (int i = 0; i < 200; ++i) decoding.step(1);
  std::vector<int> pauses;
  int plain = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::int32_t drafts = decoding.step(0).front();
    if (drafts == 0) {
      ++plain;
      continue;
    }
    if (plain >= 8) {  // less: what a plain step takes was asked, or what one of few drafts
      EXPECT_EQ(drafts, 1);
      pauses.push_back(plain);
    }
    plain = 0;
  }
  ASSERT_GE(pauses.size(), 6u);
  EXPECT_EQ(std::vector<int>(pauses.begin(), pauses.begin() + 6), (std::vector<int>{8, 16, 32, 64, 64, 64}));
}

// Answers shorter than the pauses would else pay for what the answers before have shown.
TEST(Pace, ANewRequestWaitsLongWhereEverybodysDraftsFail) {
  Decoding decoding({.busy_rows = 2}, 4, 15);
  for (int i = 0; i < 500; ++i) decoding.step(0);
  decoding.tracks.assign(4, Track());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(decoding.step(0), (std::vector<std::int32_t>(4, 0))) << i;
  EXPECT_EQ(decoding.step(0), (std::vector<std::int32_t>(4, 1)));
}

TEST(Pace, ADraftThatBecomesRightIsFoundAfterOnePause) {
  Decoding decoding({.busy_rows = 32}, 1, 15);
  for (int i = 0; i < 1000; ++i) decoding.step(0);
  int steps = 0;
  while (decoding.step(1).front() < 15) ASSERT_LT(++steps, 64 + 8);
}

TEST(Pace, WhereRowsCostAsMuchAsStepsLargeBatchesChooseSmallerBlocks) {
  std::int32_t before = 16;
  for (const std::int32_t requests : {1, 4, 16, 64}) {
    Decoding decoding({.busy_rows = 32}, requests, 15);
    for (int i = 0; i < 400; ++i) decoding.step(0.8);
    double mean = 0;
    for (int i = 0; i < 100; ++i)
      for (const std::int32_t drafts : decoding.step(0.8)) mean += drafts / (100.0 * requests);
    EXPECT_LT(mean, before) << requests;
    before = static_cast<std::int32_t>(std::ceil(mean));
  }
  EXPECT_LE(before, 1);  // 64 requests keep the machine busy by themselves
}

TEST(Pace, AFirstStepThatTookLongIsNotHeldAgainstItsBlock) {
  Pace pace({});
  Track track;
  pace.on_step(1, 1, 0.01);
  std::vector<bool> seen(17);
  for (int i = 0; i < 20; ++i) {
    const std::int32_t drafts = pace.choose(track, 15, 1);
    pace.on_step(1, 1 + drafts, seen[static_cast<std::size_t>(drafts)] ? 0.01 : 1.0);  // the first records a graph
    seen[static_cast<std::size_t>(drafts)] = true;
    track.on_verified(drafts, drafts);
    pace.on_verified(drafts, drafts);
  }
  EXPECT_EQ(pace.choose(track, 15, 1), 15);
}

TEST(Pace, ABlockThatAlwaysTakesLongIsBelievedToTheSecondTime) {
  Pace pace({});
  Track track;
  pace.on_step(1, 1, 0.01);
  for (int i = 0; i < 2; ++i) {
    const std::int32_t drafts = pace.choose(track, 15, 1);
    EXPECT_GT(drafts, 0);
    pace.on_step(1, 1 + drafts, 1.0);
  }
  EXPECT_EQ(pace.choose(track, 15, 1), 0);
}

TEST(Pace, AStepThatGetsCheaperIsFoundAgain) {
  Decoding decoding({.busy_rows = 1}, 1, 7);
  EXPECT_LT(decoding.rate(500, 0.7), 1.5 * decoding.plain_rate());
  decoding.machine.busy_rows = 32;
  decoding.rate(3000, 0.7);
  EXPECT_GT(decoding.rate(500, 0.7), 0.85 * decoding.best_rate(0.7));
}

TEST(Pace, TheSameCallsGiveTheSameAnswers) {
  Decoding one({}, 3, 15), two({}, 3, 15);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(one.step(0.7), two.step(0.7));
}

// Whatever the machine, the batch and the acceptance: after a while nearly the rate of the best fixed block, never much
// below plain decoding (what is lost is noise: of 32 requests, each judges its own drafts).
RC_GTEST_PROP(Pace, ComesNearTheBestBlockOfAnyMachine, ()) {
  const Machine machine{.busy_rows = std::pow(2.0, *rc::gen::inRange(0, 9)),
                        .row_cost = *rc::gen::inRange(0, 30) / 1000.0,
                        .draft_cost = *rc::gen::inRange(0, 30) / 100.0};
  const auto requests = *rc::gen::inRange(1, 33);
  const auto most = *rc::gen::element(3, 7, 15);
  const double acceptance = *rc::gen::inRange(0, 100) / 100.0;
  Decoding decoding(machine, requests, most);
  decoding.noise = 0.1;
  const double first = decoding.rate(300, acceptance);
  const double later = decoding.rate(1000, acceptance);
  RC_LOG() << "first " << first << " later " << later << " plain " << decoding.plain_rate() << " best "
           << decoding.best_rate(acceptance);
  RC_ASSERT(first > 0.85 * decoding.plain_rate());
  RC_ASSERT(later > 0.88 * decoding.plain_rate());
  RC_ASSERT(later > 0.80 * decoding.best_rate(acceptance));
}

}  // namespace
}  // namespace levada::spec
