// What a training step promises whatever its weights: invariance to padding, batching and accumulation; that stopping and
// going on changes no bit; that bad samples are refused by name and leave no trace.
#include <gtest/gtest.h>

#include <cmath>

#include "train/anchors.h"
#include "train/dflash_trainer.h"
#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;

TEST(Trainer, TheLossFallsOnSamplesItSeesAgain) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 4);
  auto trainer = make_trainer(small_options(), config);
  const double first = must_step(*trainer, samples.some(0, 4)).metrics.loss();
  double last = 0;
  for (int s = 0; s < 9; ++s) last = must_step(*trainer, samples.some(0, 4)).metrics.loss();
  EXPECT_LT(last, 0.8 * first);
  EXPECT_EQ(trainer->steps(), 10);
}

TEST(Trainer, RightPaddingChangesNoBit) {
  const model::DraftConfig config = small_config();
  Samples plain(config, 4), padded(config, 4);
  for (OwnedSample& sample : padded.owned) sample.pad(config, 7);
  auto a = make_trainer(small_options(), config), b = make_trainer(small_options(), config);
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(must_step(*a, plain.some(0, 4)).metrics.loss_num, must_step(*b, padded.some(0, 4)).metrics.loss_num);
  }
  EXPECT_EQ(weights_of(*a), weights_of(*b));
}

TEST(Trainer, ASamplesBlocksDoNotDependOnItsCompany) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 6);
  auto trainer = make_trainer(small_options(), config);
  const std::vector<Sample> alone = samples.some(0, 1);
  const Metrics solo = trainer->evaluate(alone).value();
  Metrics others = trainer->evaluate(samples.some(1, 5)).value();
  const Metrics all = trainer->evaluate(samples.some(0, 6)).value();
  others += solo;
  EXPECT_NEAR(all.loss_num, others.loss_num, 1e-6 * all.loss_num);
  EXPECT_EQ(all.hits, others.hits);
  EXPECT_EQ(all.accepted_prefix, others.accepted_prefix);
  EXPECT_EQ(all.slots, others.slots);
}

TEST(Trainer, AStepThatIsNotConfirmedChangesNothing) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 8);
  auto harmed = make_trainer(small_options(), config), plain = make_trainer(small_options(), config);
  const std::string before = weights_of(*harmed);
  const auto given_up = harmed->step(samples.some(4, 4), [] { return false; });
  ASSERT_TRUE(given_up.ok());
  EXPECT_TRUE(given_up->given_up);
  EXPECT_EQ(harmed->steps(), 0);
  EXPECT_EQ(weights_of(*harmed), before);
  const auto failed = harmed->step(samples.some(4, 4), [] { return unavailable("the store is gone"); });
  EXPECT_EQ(failed.status().code(), StatusCode::kUnavailable);
  const auto done = harmed->step(samples.some(0, 4), [] { return true; });
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(done->updated);
  must_step(*plain, samples.some(0, 4));
  EXPECT_EQ(weights_of(*harmed), weights_of(*plain));
}

// The global weighted mean: however a step's samples are cut into micro-batches, also with unequal weights in each.
TEST(Trainer, OneBatchOfFourEqualsFourMicroBatchesOfOne) {
  const model::DraftConfig config = small_config();
  Samples samples(config, 4);
  for (std::size_t t = 8; t < samples.owned[1].mask.size(); ++t) samples.owned[1].mask[t] = 0;  // very little to learn
  Options whole = small_options(), single = small_options();
  whole.batch_size = 4;
  whole.accumulation_steps = 1;
  single.batch_size = 1;
  single.accumulation_steps = 4;
  auto a = make_trainer(whole, config), b = make_trainer(single, config);
  for (int s = 0; s < 3; ++s) {
    const StepReport x = must_step(*a, samples.some(0, 4)), y = must_step(*b, samples.some(0, 4));
    EXPECT_NEAR(x.metrics.loss(), y.metrics.loss(), 1e-5);
    EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-5 * x.grad_norm);
  }
  EXPECT_LT(difference(weights_of(*a), weights_of(*b)), 2e-5);
}

TEST(Trainer, SizeOfTheObjectivesChunksChangesNothing) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 4);
  Options one = small_options(), all = small_options();
  one.objective_chunk_blocks = 1;
  all.objective_chunk_blocks = 0;
  auto a = make_trainer(one, config), b = make_trainer(all, config);
  for (int s = 0; s < 3; ++s) {
    const StepReport x = must_step(*a, samples.some(0, 4)), y = must_step(*b, samples.some(0, 4));
    EXPECT_NEAR(x.metrics.loss(), y.metrics.loss(), 1e-6);
  }
  EXPECT_LT(difference(weights_of(*a), weights_of(*b)), 2e-5);
}

// B47, B35: going on after a stop equals not stopping, bit for bit, masters and moments included.
class Resume : public testing::TestWithParam<std::string> {};
TEST_P(Resume, B47EqualsAStraightRunBitForBit) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 12);
  const TemporaryFolder straight_out, stopped_out;
  Options options = small_options();
  options.torch_dtype = GetParam();
  options.output_dir = straight_out.path();
  auto straight = make_trainer(options, config);
  for (std::size_t s = 0; s < 8; ++s) must_step(*straight, samples.some(4 * s, 4));
  options.output_dir = stopped_out.path();
  auto first = make_trainer(options, config);
  for (std::size_t s = 0; s < 3; ++s) must_step(*first, samples.some(4 * s, 4));
  const auto folder = first->save();
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  EXPECT_EQ(folder->filename(), "run-step3");
  first.reset();
  auto second = DflashTrainer::resume(stopped_out.path() / "run-latest", options, config,
                                      small_tables(config, options.torch_dtype));
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ((*second)->steps(), 3);
  for (std::size_t s = 3; s < 8; ++s) must_step(**second, samples.some(4 * s, 4));
  const auto a = straight->save().value(), b = (*second)->save().value();
  EXPECT_EQ(content(a / "optimizer.safetensors"), content(b / "optimizer.safetensors"));
  EXPECT_EQ(content(a / "model.safetensors"), content(b / "model.safetensors"));
}
INSTANTIATE_TEST_SUITE_P(Types, Resume, testing::Values("float32", "bfloat16"));

TEST(Trainer, AnchorsDependOnSeedSampleAndEpochOnly) {
  const std::vector<float> u = anchor_uniforms(42, "sample-7", 0, 50);
  EXPECT_EQ(u, anchor_uniforms(42, "sample-7", 0, 50));
  const std::vector<float> longer = anchor_uniforms(42, "sample-7", 0, 90);
  EXPECT_TRUE(std::equal(u.begin(), u.end(), longer.begin())) << "padding adds numbers, it moves none";
  EXPECT_NE(u, anchor_uniforms(43, "sample-7", 0, 50));
  EXPECT_NE(u, anchor_uniforms(42, "sample-8", 0, 50));
  EXPECT_NE(u, anchor_uniforms(42, "sample-7", 1, 50)) << "fresh at each visit";
  for (float value : u) EXPECT_TRUE(value >= 0 && value < 1);
}

TEST(Anchors, NeedTwoNeighbouringSupervisedTokens) {
  using List = std::vector<std::int64_t>;
  EXPECT_EQ(eligible_anchors(List{0, 1, 1, 0, 1, 1, 1}), (List{1, 4, 5}));
  EXPECT_EQ(eligible_anchors(List{1, 0, 1, 0, 1}), List{});
  EXPECT_EQ(eligible_anchors(List{1}), List{});
  EXPECT_EQ(eligible_anchors(List{}), List{});
  const std::vector<float> u{.1f, .9f, .2f, .3f, .4f, .05f};
  EXPECT_EQ(pick_anchors(List{0, 1, 1, 0, 1, 1, 1}, u, 2), (List{4, 5})) << "the smallest numbers of eligible ones";
}

// B22: one table of (context seen, input token, label) per trained slot: labels are the data's token at the same position,
// nothing is shifted, and the number of trained slots is the hand-counted one.
TEST(Trainer, B22TrainedSlotsAreThoseCountedByHand) {
  const model::DraftConfig config = small_config();  // blocks of 4
  OwnedSample sample(config, 10, 1);
  sample.mask = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1};  // answers at 5..9: anchors 5, 6, 7, 8
  Options options = small_options();
  options.num_anchors = 100;
  auto trainer = make_trainer(options, config);
  const std::vector<Sample> one{sample.sample()};
  const Metrics metrics = trainer->evaluate(one).value();
  EXPECT_EQ(metrics.blocks, 4);
  EXPECT_EQ(metrics.slots, 3 + 3 + 2 + 1) << "6 7 8 | 7 8 9 | 8 9 | 9";
}

// B47: a sample whose answers were all cut off is counted and said, never a silent loss of 0.
TEST(Trainer, B47NothingToLearnIsCountedAndMovesNoWeight) {
  const model::DraftConfig config = small_config();
  Samples samples(config, 4);
  for (OwnedSample& sample : samples.owned) std::fill(sample.mask.begin(), sample.mask.end(), 0);
  auto trainer = make_trainer(small_options(), config);
  const std::string before = weights_of(*trainer);
  testing::internal::CaptureStderr();
  const StepReport report = must_step(*trainer, samples.some(0, 4));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("nothing to learn"), std::string::npos);
  EXPECT_FALSE(report.updated);
  EXPECT_EQ(report.metrics.unlearnable_samples, 4);
  EXPECT_EQ(weights_of(*trainer), before);
  EXPECT_EQ(trainer->steps(), 1) << "the samples were consumed: the schedule moves on";

  samples.owned[0].mask.assign(samples.owned[0].mask.size(), 1);
  const StepReport some = must_step(*trainer, samples.some(0, 4));
  EXPECT_TRUE(some.updated);
  EXPECT_EQ(some.metrics.unlearnable_samples, 3);
}

TEST(Trainer, LongSamplesAreCut) {
  const model::DraftConfig config = small_config();
  Options options = small_options();
  options.max_length = 15;
  const Samples samples(config, 1);
  OwnedSample cut = samples.owned[0];
  const auto width = static_cast<std::size_t>(config.features());
  cut.ids.resize(15);
  cut.mask.resize(15);
  cut.features.resize(15 * width);
  auto trainer = make_trainer(options, config);
  const std::vector<Sample> a{samples.owned[0].sample()}, b{cut.sample()};
  EXPECT_EQ(trainer->evaluate(a).value().loss_num, trainer->evaluate(b).value().loss_num);
}

TEST(Trainer, BadSamplesAreRefusedByNameAndLeaveNoTrace) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 4);
  auto trainer = make_trainer(small_options(), config);
  const std::string before = weights_of(*trainer);
  auto expect_refused = [&](const std::function<void(OwnedSample&)>& damage, const std::string& field,
                            StatusCode code) {
    Samples bad = samples;
    damage(bad.owned[2]);
    const Status status = trainer->step(bad.some(0, 4)).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_EQ(status.field(), field);
    EXPECT_NE(status.message().find("sample-102"), std::string::npos) << status.message();
  };
  expect_refused([](OwnedSample& s) { s.ids[3] = 97; }, "input_ids", StatusCode::kInvalidArgument);
  expect_refused([](OwnedSample& s) { s.ids[3] = -1; }, "input_ids", StatusCode::kInvalidArgument);
  expect_refused([](OwnedSample& s) { s.mask.pop_back(); }, "loss_mask", StatusCode::kInvalidArgument);
  expect_refused([](OwnedSample& s) { s.features.pop_back(); }, "hidden_states", StatusCode::kInvalidArgument);
  expect_refused([](OwnedSample& s) { s.ids.clear(); }, "input_ids", StatusCode::kInvalidArgument);
  expect_refused([](OwnedSample& s) { s.features[0] = 0x7fc0; }, "", StatusCode::kDataLoss);
  EXPECT_EQ(trainer->step(samples.some(0, 3)).status().field(), "samples");
  EXPECT_EQ(trainer->steps(), 0);
  EXPECT_EQ(weights_of(*trainer), before);
}

TEST(Trainer, OptionsAndTablesThatDoNotFitAreRefused) {
  const model::DraftConfig config = small_config();
  auto field_of = [&](const std::function<void(Options&, model::DraftConfig&)>& change) {
    Options options = small_options();
    model::DraftConfig other = config;
    change(options, other);
    return DflashTrainer::create(options, other, small_tables(config)).status().field();
  };
  EXPECT_EQ(field_of([](Options&, model::DraftConfig& c) { c.vocabulary = 98; }), "vocab_size");
  EXPECT_EQ(field_of([](Options&, model::DraftConfig& c) { c.num_target_layers = 9; }), "num_target_layers");
  EXPECT_EQ(field_of([](Options&, model::DraftConfig& c) { c.hidden = 40; }), "hidden_size");
  EXPECT_EQ(field_of([](Options& o, model::DraftConfig&) { o.torch_dtype = "bfloat16"; }), "torch_dtype");
  EXPECT_EQ(field_of([](Options& o, model::DraftConfig&) { o.total_steps = 0; }), "total_steps");
  EXPECT_EQ(field_of([](Options& o, model::DraftConfig&) { o.run_id = "a/b"; }), "run_id");
  EXPECT_NE(DflashTrainer::create(
                [] {
                  Options o = small_options();
                  o.lr_scheduler = "linear";
                  return o;
                }(),
                config, small_tables(config))
                .status()
                .to_string()
                .find("lr_scheduler"),
            std::string::npos);
}

// Rows of length 8: without the smaller norm, what a fresh draft says is far worse than a guess (ln 97 = 4.6).
TEST(Trainer, AFreshDraftDoesNotShoutThroughALongHead) {
  const model::DraftConfig config = small_config();
  const at::Tensor table = random_table(config.vocabulary, config.hidden, 1, "float32").mul_(std::sqrt(8.f));
  const auto tables = std::make_shared<FrozenTensors>(table, table, config.num_target_layers);
  EXPECT_NEAR(tables->head_row_length(), 8, 0.3);
  auto trainer = std::move(DflashTrainer::create(small_options(), config, tables)).value();
  const Samples samples(config, 4);
  EXPECT_LT(std::move(trainer->evaluate(samples.some(0, 4))).value().loss(), 8);
}

// Two ranks that add their gradients: as one process with both micro-batches.
class FakeCollective final : public Collective {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t world() const override { return 2; }
  Status all_reduce_sum(std::span<float> values) override { return add(values); }
  Status all_reduce_sum(std::span<double> values) override { return add(values); }
  std::vector<double> other;  // what the other rank contributes, call after call
  std::size_t next = 0;

 private:
  template <class T>
  Status add(std::span<T> values) {
    if (recording) {
      for (T value : values) other.push_back(value);
      return {};
    }
    for (T& value : values) value += static_cast<T>(other[next++]);
    return {};
  }

 public:
  bool recording = true;
};

TEST(Trainer, TwoRanksEqualOneWithBothTheirSamples) {
  const model::DraftConfig config = small_config();
  const Samples samples(config, 4);
  Options half = small_options();
  half.accumulation_steps = 1;
  FakeCollective peers;
  {
    auto second = std::move(DflashTrainer::create(half, config, small_tables(config), &peers)).value();
    must_step(*second, samples.some(2, 2));
  }
  peers.recording = false;
  auto first = std::move(DflashTrainer::create(half, config, small_tables(config), &peers)).value();
  const StepReport two = must_step(*first, samples.some(0, 2));
  auto whole = make_trainer(small_options(), config);
  const StepReport one = must_step(*whole, samples.some(0, 4));
  EXPECT_NEAR(two.metrics.loss(), one.metrics.loss(), 1e-6);
  EXPECT_NEAR(two.grad_norm, one.grad_norm, 1e-6 * one.grad_norm);
  EXPECT_EQ(two.metrics.samples, 4);
  EXPECT_LT(difference(weights_of(*first), weights_of(*whole)), 1e-5);
}

}  // namespace
}  // namespace levada::train
