#include "train/training_run.h"

#include <gtest/gtest.h>

#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;

// Hands out samples in order and writes down what it is told.
class ListedSource final : public SampleSource {
 public:
  ListedSource(const Samples& samples, std::size_t count) : samples_(samples), left_(count) {}
  Result<std::vector<Sample>> next(std::int64_t count) override {
    if (!failure.ok()) return failure;
    const auto wanted = static_cast<std::size_t>(count);
    if (left_ < wanted) return std::vector<Sample>();
    left_ -= wanted;
    told.push_back("next");
    at_ += wanted;
    return samples_.some(at_ - wanted, wanted);
  }
  Result<bool> confirm() override {
    if (refusals == 0) return true;
    --refusals;
    told.push_back("refused");
    at_ -= 4;  // the same again
    left_ += 4;
    return false;
  }
  Status checkpointed(std::int64_t step, const std::filesystem::path& folder) override {
    EXPECT_TRUE(std::filesystem::exists(folder / "state.json"));
    told.push_back("checkpoint " + std::to_string(step));
    return {};
  }
  Status stepped(std::int64_t step) override {
    told.push_back("step " + std::to_string(step));
    return {};
  }
  std::vector<std::string> told;
  Status failure;
  int refusals = 0;  // of confirm()

 private:
  const Samples& samples_;
  std::size_t left_, at_ = 0;
};

struct Scene {
  Scene() {
    options.output_dir = folder.path();
    options.total_steps = 3;
    options.save_interval = 2;
  }
  TemporaryFolder folder;
  model::DraftConfig config = small_config();
  Options options = small_options();
  Samples samples{config, 8};
  ManualClock clock;
};

TEST(TrainingRun, AStepThatTheSourceDoesNotConfirmIsMadeAgain) {
  Scene s;
  auto trainer = make_trainer(s.options, s.config), unharmed = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 100), other(s.samples, 100);
  source.refusals = 2;
  const RunReport report = run_training(*trainer, source, s.clock, {}).value();
  EXPECT_EQ(report.steps, 3);
  EXPECT_EQ((std::vector(source.told.begin(), source.told.begin() + 6)),
            (std::vector<std::string>{"next", "refused", "next", "refused", "next", "step 1"}));
  ASSERT_TRUE(run_training(*unharmed, other, s.clock, {}).ok());
  EXPECT_EQ(weights_of(*trainer), weights_of(*unharmed));
}

TEST(TrainingRun, AStepThatIsNeverConfirmedEndsTheRun) {
  Scene s;
  auto trainer = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 100);
  source.refusals = 1000;
  EXPECT_EQ(run_training(*trainer, source, s.clock, {}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(trainer->steps(), 0);
}

TEST(TrainingRun, CheckpointsComeBeforeTheStepTheyMakeDurable) {
  Scene s;
  auto trainer = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 100);
  const RunReport report = run_training(*trainer, source, s.clock, {}).value();
  EXPECT_EQ(source.told, (std::vector<std::string>{"next", "step 1", "next", "checkpoint 2", "step 2", "next",
                                                   "checkpoint 3", "step 3"}));
  EXPECT_EQ(report.steps, 3);
  EXPECT_FALSE(report.ended_early);
  EXPECT_EQ(report.checkpoint.filename(), "run-step3");
  EXPECT_GT(report.loss_first, 0);
}

TEST(TrainingRun, ASourceThatEndsLeavesACheckpointOfTheLastStep) {
  Scene s;
  auto trainer = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 7);  // one step of four, and a tail
  const RunReport report = run_training(*trainer, source, s.clock, {}).value();
  EXPECT_TRUE(report.ended_early);
  EXPECT_EQ(source.told, (std::vector<std::string>{"next", "step 1", "checkpoint 1"}));
}

TEST(TrainingRun, StopEndsAfterTheStep) {
  Scene s;
  auto trainer = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 100);
  std::atomic<bool> stop{false};
  RunHooks hooks;
  hooks.stop = &stop;
  hooks.on_step = [&](const StepReport&, double, double) { stop = true; };
  EXPECT_TRUE(run_training(*trainer, source, s.clock, hooks)->ended_early);
  EXPECT_EQ(source.told, (std::vector<std::string>{"next", "step 1", "checkpoint 1"}));
}

TEST(TrainingRun, EvaluatesHeldOutSamplesWithBothChainMetrics) {
  Scene s;
  s.options.eval_interval = 2;
  auto trainer = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 100);
  const Samples held_out(s.config, 3, 900);
  RunHooks hooks;
  hooks.held_out = held_out.some(0, 3);
  std::vector<std::int64_t> at;
  hooks.on_evaluation = [&](std::int64_t step, const Metrics& metrics) {
    at.push_back(step);
    EXPECT_EQ(metrics.samples, 3);
    EXPECT_EQ(metrics.tau(), metrics.mean_accepted_prefix() + 1);
  };
  ASSERT_TRUE(run_training(*trainer, source, s.clock, hooks).ok());
  EXPECT_EQ(at, std::vector<std::int64_t>{2});
}

TEST(TrainingRun, ASourcesFailureIsTheRunsAndWritesNothing) {
  Scene s;
  auto trainer = make_trainer(s.options, s.config);
  ListedSource source(s.samples, 100);
  source.failure = unavailable("the registry is gone");
  EXPECT_EQ(run_training(*trainer, source, s.clock, {}).status().message(), "the registry is gone");
  EXPECT_TRUE(std::filesystem::is_empty(s.folder.path()));
}

}  // namespace
}  // namespace levada::train
