// Several processes of one trainer: sums, dealt samples, and how each learns that another has ended.
#include "train/rank_processes.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>

#include "train/dealt_source.h"
#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;

// Runs `body` in `world` processes; what it returns in each is the answer, in rank order.
std::vector<std::string> in_processes(std::int64_t world, const std::function<std::string(RankProcesses&)>& body) {
  const TemporaryFolder folder;
  const auto file = [&](std::int64_t rank) { return folder.path() / std::to_string(rank); };
  {
    RankProcesses ranks = std::move(RankProcesses::start(world)).value();
    std::ofstream(file(ranks.rank()), std::ios::binary) << body(ranks);
    if (ranks.rank() > 0) ::_exit(0);  // not into the tests that follow
  }
  std::vector<std::string> answers;
  for (std::int64_t rank = 0; rank < world; ++rank) answers.push_back(content(file(rank)));
  return answers;
}

std::string code_of(const Status& status) { return std::string(to_string(status.code())); }

TEST(RankProcesses, EveryRankGetsTheSameSumsOfAnyLength) {
  const auto answers = in_processes(3, [](RankProcesses& ranks) {
    std::vector<float> values(600001);  // more than two pieces
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 7) + 0.1f * static_cast<float>(ranks.rank());
    }
    std::vector<double> one{static_cast<double>(ranks.rank())}, none;
    Status status = ranks.collective().all_reduce_sum(std::span<float>(values));
    if (status.ok()) status = ranks.collective().all_reduce_sum(std::span<double>(none));
    if (status.ok()) status = ranks.collective().all_reduce_sum(std::span<double>(one));
    if (!status.ok()) return status.to_string();
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)) +
           std::to_string(one[0]);
  });
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_EQ(answers[0], answers[2]);
  ASSERT_GT(answers[0].size(), 600001 * sizeof(float)) << answers[0];
  float last = 0;
  std::memcpy(&last, answers[0].data() + 600000 * sizeof(float), sizeof last);
  EXPECT_NEAR(last, 3 * (600000 % 7) + 0.3f, 1e-5);
  EXPECT_EQ(answers[0].substr(600001 * sizeof(float)), std::to_string(3.0));
}

TEST(RankProcesses, ARankThatIsGoneIsUnavailableForGoodNotAHang) {
  const auto answers = in_processes(3, [](RankProcesses& ranks) -> std::string {
    if (ranks.rank() == 1) ::raise(SIGKILL);
    std::vector<float> values(1 << 20);
    const std::string first = code_of(ranks.collective().all_reduce_sum(std::span<float>(values)));
    return first + " " + code_of(ranks.collective().all_reduce_sum(std::span<float>(values)));
  });
  const std::string twice = code_of(unavailable("")) + " " + code_of(unavailable(""));
  EXPECT_EQ(answers[0], twice);
  EXPECT_EQ(answers[2], twice);
}

TEST(RankProcesses, RanksThatMakeDifferentCallsAreTold) {
  const auto answers = in_processes(2, [](RankProcesses& ranks) {
    std::vector<float> values(ranks.rank() == 0 ? 10 : 11);
    return ranks.collective().all_reduce_sum(std::span<float>(values)).message();
  });
  EXPECT_NE(answers[0].find("44 bytes"), std::string::npos) << answers[0];
}

TEST(RankProcesses, ARankAloneNeedsNobody) {
  RankProcesses alone = std::move(RankProcesses::start(1)).value();
  std::vector<double> values{2};
  EXPECT_TRUE(alone.collective().all_reduce_sum(std::span<double>(values)).ok());
  EXPECT_EQ(values[0], 2);
}

// Gives `steps` times the samples it has, and counts what it is told.
class RepeatedSource final : public SampleSource {
 public:
  RepeatedSource(const Samples& samples, int steps) : samples_(samples), left_(steps) {}
  Result<std::vector<Sample>> next(std::int64_t count) override {
    if (left_-- == 0) return std::vector<Sample>();
    return samples_.some(0, static_cast<std::size_t>(count));
  }
  Status checkpointed(std::int64_t, const std::filesystem::path&) override { return {}; }
  Status stepped(std::int64_t) override { return {}; }

 private:
  const Samples& samples_;
  int left_;
};

// The loop of a rank: its weights after the source's end.
std::string trained(RankProcesses& ranks, const Options& options, const model::DraftConfig& config,
                    const Samples& samples) {
  RepeatedSource whole(samples, 3);
  DealtSource dealt(whole, ranks.collective());
  TakenSource taken(ranks.collective());
  SampleSource& source = ranks.rank() == 0 ? static_cast<SampleSource&>(dealt) : taken;
  auto trainer = DflashTrainer::create(options, config, small_tables(config), &ranks.collective());
  if (!trainer.ok()) return trainer.status().to_string();
  for (;;) {
    const auto step = source.next(options.samples_per_step());
    if (!step.ok()) return step.status().to_string();
    if (step->empty()) return weights_of(**trainer);
    if (const auto report = (*trainer)->step(*step); !report.ok()) return report.status().to_string();
    if (const Status told = source.stepped((*trainer)->steps()); !told.ok()) return told.to_string();
  }
}

// Two processes with half of each step: bitwise equal to each other, and as near to one process with whole steps as the
// order of sums allows.
TEST(RankProcesses, TwoTrainWhatOneWould) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 4);
  Options half = small_options();
  half.accumulation_steps = 1;
  const auto weights = in_processes(2, [&](RankProcesses& ranks) { return trained(ranks, half, config, samples); });
  EXPECT_EQ(weights[0], weights[1]);
  auto whole = make_trainer(small_options(), config);
  for (int step = 0; step < 3; ++step) must_step(*whole, samples.some(0, 4));
  EXPECT_LT(difference(weights[0], weights_of(*whole)), 1e-5);
}

TEST(DealtSource, SamplesArriveAsTheyWere) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 4);
  const auto text = [](const std::vector<Sample>& all) {
    std::string text;
    for (const Sample& one : all) {
      text += one.sample_id + " " + std::to_string(one.epoch);
      for (const auto bytes :
           {std::as_bytes(one.input_ids), std::as_bytes(one.loss_mask), std::as_bytes(one.hidden_states)}) {
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    }
    return text;
  };
  const auto answers = in_processes(2, [&](RankProcesses& ranks) {
    RepeatedSource whole(samples, 1);
    DealtSource dealt(whole, ranks.collective());
    TakenSource taken(ranks.collective());
    SampleSource& source = ranks.rank() == 0 ? static_cast<SampleSource&>(dealt) : taken;
    const std::string first = text(source.next(2).value());
    return first + (source.next(2).value().empty() ? " end" : " more");
  });
  EXPECT_EQ(answers[0], text(samples.some(0, 2)) + " end");
  // Rank 0's end is the other's, once its sockets are closed.
  EXPECT_EQ(answers[1], text(samples.some(2, 2)) + " end");
}

}  // namespace
}  // namespace levada::train
