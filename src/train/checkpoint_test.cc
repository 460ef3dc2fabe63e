// Checkpoints: whole or not there, refused when they don't belong to the run or are damaged, rotated; and exported drafts.
#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include "files/tensor_source.h"
#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;
namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

struct Trained {
  explicit Trained(int steps, std::int64_t max_checkpoints = 0) {
    options.output_dir = folder.path();
    options.max_checkpoints = max_checkpoints;
    trainer = make_trainer(options, config);
    for (int s = 0; s < steps; ++s) {
      must_step(*trainer, samples.some(0, 4));
      saved = trainer->save().value();
    }
  }
  Status resume(const Options& with, const model::DraftConfig& draft) const {
    return DflashTrainer::resume(saved, with, draft, small_tables(config)).status();
  }
  TemporaryFolder folder;
  model::DraftConfig config = small_config();
  Options options = small_options();
  Samples samples{config, 4};
  std::unique_ptr<DflashTrainer> trainer;
  fs::path saved;
};

TEST(Checkpoint, LatestPointsToTheNewestAndOldOnesGo) {
  const Trained trained(4, 2);
  EXPECT_EQ(names_in(trained.folder.path()), (std::vector<std::string>{"run-latest", "run-step3", "run-step4"}));
  EXPECT_EQ(fs::read_symlink(trained.folder.path() / "run-latest"), "run-step4");
}

TEST(Checkpoint, SavingAStepRemovesLaterOnesAndWhatACrashLeft) {
  Trained trained(3);
  fs::create_directory(trained.folder.path() / ".run-step2.tmp");
  fs::create_directory(trained.folder.path() / "run-step9");
  fs::create_directory(trained.folder.path() / "run-stepping-stone");  // somebody else's
  ASSERT_TRUE(trained.trainer->save().ok());                           // step 3 again
  EXPECT_EQ(names_in(trained.folder.path()),
            (std::vector<std::string>{"run-latest", "run-step1", "run-step2", "run-step3", "run-stepping-stone"}));
}

TEST(Checkpoint, AFolderThatCannotBeWrittenIsAStatusAndLeavesTheOldOne) {
  Trained trained(1);
  const std::string state = content(trained.saved / "state.json");
  Options blocked = trained.options;
  std::ofstream(trained.folder.path() / "file") << "x";
  blocked.output_dir = (trained.folder.path() / "file" / "out").string();
  auto other = make_trainer(blocked, trained.config);
  EXPECT_EQ(other->save().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(content(trained.saved / "state.json"), state);
}

TEST(Checkpoint, AnotherRunIsRefusedByTheFieldThatDiffers) {
  const Trained trained(1);
  auto field = [&](const std::function<void(Options&, model::DraftConfig&)>& change) {
    Options options = trained.options;
    model::DraftConfig config = trained.config;
    change(options, config);
    return trained.resume(options, config).field();
  };
  EXPECT_EQ(field([](Options&, model::DraftConfig&) {}), "");
  EXPECT_EQ(field([](Options& o, model::DraftConfig&) { o.learning_rate = 1; }), "learning_rate");
  EXPECT_EQ(field([](Options& o, model::DraftConfig&) { o.seed = 43; }), "seed");
  EXPECT_EQ(field([](Options& o, model::DraftConfig&) { o.num_anchors = 6; }), "num_anchors");
  EXPECT_EQ(field([](Options& o, model::DraftConfig&) { o.batch_size = 4; }), "batch_size");
  EXPECT_EQ(field([](Options&, model::DraftConfig& c) { c.block_size = 8; }), "draft.block_size");
  EXPECT_EQ(field([](Options&, model::DraftConfig& c) {
              c.target_layer_ids = {1, 3, 4};
            }),
            "draft.dflash_config.target_layer_ids");
  EXPECT_EQ(field([](Options& o, model::DraftConfig&) { o.save_interval = 7; }), "")
      << "where and when to save is free";
  const auto other = DflashTrainer::resume(
      trained.saved, trained.options, trained.config,
      std::make_shared<FrozenTensors>(random_table(97, 32, 8, "float32"), random_table(97, 32, 9, "float32"), 8));
  EXPECT_EQ(other.status().field(), "tables") << "another target";
}

TEST(Checkpoint, DamageIsDataLoss) {
  auto status_after = [](const std::function<void(const fs::path&)>& damage) {
    const Trained trained(1);
    damage(trained.saved);
    return trained.resume(trained.options, trained.config).code();
  };
  auto flip_last_byte = [](const fs::path& file) {
    std::string bytes = content(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(file, std::ios::binary) << bytes;
  };
  EXPECT_EQ(status_after([&](const fs::path& f) { flip_last_byte(f / "optimizer.safetensors"); }),
            StatusCode::kDataLoss);
  EXPECT_EQ(status_after([](const fs::path& f) { fs::resize_file(f / "optimizer.safetensors", 1000); }),
            StatusCode::kDataLoss);
  EXPECT_EQ(status_after([](const fs::path& f) { std::ofstream(f / "state.json") << "{"; }), StatusCode::kDataLoss);
  EXPECT_EQ(status_after([](const fs::path& f) {
              std::string text = content(f / "state.json");
              text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
              std::ofstream(f / "state.json") << text;
            }),
            StatusCode::kDataLoss);
  EXPECT_EQ(status_after([](const fs::path& f) { fs::remove(f / "state.json"); }), StatusCode::kNotFound);
}

// B46: what is exported is what was trained, no more and no less, and gives the same losses when loaded.
TEST(Export, B46HasExactlyTheCheckpointsTensorsAndGivesTheSameLoss) {
  model::DraftConfig config = small_config();
  config.attention_bias = true;
  Options options = small_options();
  const Samples samples(config, 4);
  auto trainer = make_trainer(options, config);
  must_step(*trainer, samples.some(0, 4));
  const TemporaryFolder out;
  ASSERT_TRUE(trainer->export_to(out.path()).ok());
  EXPECT_EQ(names_in(out.path()), (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(model::read_draft_config(out.path() / "config.json").value(), config);
  const auto file = std::move(files::open_safetensors(out.path() / "model.safetensors")).value();
  EXPECT_EQ(file->tensors().size(), 3u + 2 * (4 + 4 + 3 + 4));
  EXPECT_EQ(file->find("fc.weight")->shape, (std::vector<std::int64_t>{32, 96}));
  EXPECT_EQ(file->find("layers.1.self_attn.k_proj.bias")->shape, (std::vector<std::int64_t>{16}));
  EXPECT_EQ(file->find("lm_head.weight"), nullptr);

  options.seed = 7;
  auto fresh = make_trainer(options, config);
  ASSERT_TRUE(fresh->load_weights(out.path()).ok());
  EXPECT_EQ(weights_of(*fresh), weights_of(*trainer));
}

TEST(Export, LoadingWeightsOfAnotherShapeOrWithOtherTensorsIsRefused) {
  const model::DraftConfig config = small_config();
  auto trainer = make_trainer(small_options(), config);
  const TemporaryFolder out;
  ASSERT_TRUE(trainer->export_to(out.path()).ok());
  const auto field_of = [&](const std::function<void(model::DraftConfig&)>& change) {
    model::DraftConfig other = config;
    change(other);
    return make_trainer(small_options(), other)->load_weights(out.path()).field();
  };
  EXPECT_EQ(field_of([](model::DraftConfig& c) { c.intermediate = 64; }), "intermediate_size");
  EXPECT_EQ(field_of([](model::DraftConfig& c) { c.norm_eps = 1e-5; }), "rms_norm_eps");
  EXPECT_EQ(field_of([](model::DraftConfig& c) { c.sliding = {false, true}; }), "layer_types");
  EXPECT_EQ(field_of([](model::DraftConfig& c) { c.norm_eps = static_cast<float>(c.norm_eps); }), "")
      << "the same float";
  std::string bytes = content(out.path() / "model.safetensors");
  bytes.replace(bytes.find("hidden_norm.weight"), 18, "hidden_nose.weight");
  std::ofstream(out.path() / "model.safetensors", std::ios::binary) << bytes;
  const std::string before = weights_of(*trainer);
  EXPECT_EQ(trainer->load_weights(out.path()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(weights_of(*trainer), before);
}

}  // namespace
}  // namespace levada::train
