// Anchors, twelve optimizer steps and a held-out evaluation against the independent oracle (tests/vectors/dflash).
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "files/tensor_source.h"
#include "nn/tensor.h"
#include "support/vectors.h"
#include "train/anchors.h"
#include "train/draft_state.h"
#include "train/schedule.h"
#include "train/trainer_support_test.h"

namespace levada::train {
namespace {

using namespace test;

// The same tests run on a GPU, in train_cuda_test.
#ifdef LEVADA_TRAIN_ON_CUDA
constexpr const char* kDevice = "cuda";
#else
constexpr const char* kDevice = "cpu";
#endif

// The goldens of a case; a tensor left out of the file is its base's.
class Golden {
 public:
  explicit Golden(const std::string& name, const std::string& base = {})
      : source_(open(name)), base_(base.empty() ? nullptr : open(base)) {}

  std::vector<float> floats(const std::string& name) const {
    const files::TensorInfo& info = find(name);
    std::vector<float> values(static_cast<std::size_t>(info.elements()));
    files::decode_to_f32(info, 0, info.elements(), values.data());
    return values;
  }
  std::vector<std::int64_t> integers(const std::string& name) const {
    const files::TensorInfo& info = find(name);
    std::vector<std::int64_t> values(static_cast<std::size_t>(info.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (info.encoding == files::Encoding::kU8) {
        values[i] = static_cast<std::int64_t>(info.bytes[i]);
      } else {
        std::memcpy(&values[i], info.bytes.data() + i * 8, 8);
      }
    }
    return values;
  }
  std::int64_t integer(const std::string& name) const { return integers(name).front(); }
  const std::vector<std::int64_t>& shape(const std::string& name) const { return find(name).shape; }
  const files::TensorInfo& find(const std::string& name) const {
    const files::TensorInfo* own = source_->find(name);
    if (own == nullptr && base_ != nullptr) own = base_->find(name);
    LEVADA_CHECK(own != nullptr, name.c_str());
    return *own;
  }

 private:
  static std::unique_ptr<files::TensorSource> open(const std::string& name) {
    const auto folder = levada::test::vectors() / "dflash";
    return std::move(files::open_safetensors(folder / (name + ".safetensors"))).value();
  }
  std::unique_ptr<files::TensorSource> source_, base_;
};

model::DraftConfig config_of(const Golden& golden, std::int64_t target_layers, const std::string& dtype) {
  model::DraftConfig c;
  c.hidden = golden.integer("cfg.hidden");
  c.intermediate = golden.integer("cfg.inter");
  c.layers = golden.integer("cfg.layers");
  c.heads = golden.integer("cfg.nh");
  c.kv_heads = golden.integer("cfg.nkv");
  c.head_dim = golden.integer("cfg.hd");
  c.vocabulary = golden.shape("t.embed_tokens.weight")[0];
  c.block_size = golden.integer("cfg.block");
  c.mask_token_id = golden.integer("cfg.mask_id");
  c.target_layer_ids = golden.integers("cfg.target_layer_ids");
  c.num_target_layers = target_layers;
  c.norm_eps = golden.floats("cfg.eps").front();
  c.rope_theta = golden.floats("cfg.theta").front();
  c.sliding.assign(static_cast<std::size_t>(c.layers), false);
  c.dtype = dtype;
  return c;
}

std::shared_ptr<const FrozenTables> tables_of(const Golden& golden, std::int64_t layers, const std::string& dtype) {
  auto table = [&](const std::string& name) {
    const at::Tensor wide = at::empty(golden.shape(name), at::TensorOptions().dtype(at::kFloat));
    const std::vector<float> values = golden.floats(name);
    std::copy(values.begin(), values.end(), wide.data_ptr<float>());
    return dtype == "float32" ? wide : wide.to(at::kBFloat16);
  };
  return std::make_shared<FrozenTensors>(table("t.embed_tokens.weight"), table("t.lm_head.weight"), layers);
}

// Writes the golden's w.* as an exported draft, which the trainer then loads.
void export_golden(const Golden& golden, const model::DraftConfig& config, const std::filesystem::path& folder) {
  std::string header = "{", data;
  for (const nn::NamedSlice& slice : nn::draft_slices(geometry_of(config))) {
    std::vector<float> values = golden.floats("w." + slice.name);
    if (config.dtype == "bfloat16") {  // masters begin as the rounded weights
      for (float& value : values) value = c10::BFloat16(value);
    }
    std::string shape;
    for (std::int64_t size : slice.shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    header += (data.empty() ? "\"" : ",\"") + slice.name + R"(":{"dtype":"F32","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + values.size() * 4) + "]}";
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  }
  header += "}";
  const std::uint64_t length = header.size();
  std::ofstream(folder / "config.json") << model::draft_config_json(config);
  std::ofstream(folder / "model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), 8) << header << data;
}

// The rows of a golden's padded batch as samples that inject its uniforms.
struct Batch {
  Batch(const Golden& golden, const std::string& ids_name, const std::string& features_name,
        const std::string& mask_name, const std::string& u_name)
      : ids(golden.integers(ids_name)), features(golden.floats(features_name)), uniforms(golden.floats(u_name)) {
    for (float m : golden.floats(mask_name)) mask.push_back(m > 0.5f ? 1 : 0);
    rows = static_cast<std::size_t>(golden.shape(ids_name)[0]);
  }
  std::vector<Sample> samples() const {
    const std::size_t tokens = ids.size() / rows, width = features.size() / rows;
    std::vector<Sample> out;
    for (std::size_t r = 0; r < rows; ++r) {
      Sample sample;
      sample.sample_id = std::to_string(r);
      sample.input_ids = std::span(ids).subspan(r * tokens, tokens);
      sample.loss_mask = std::span(mask).subspan(r * tokens, tokens);
      sample.hidden_states_f32 = std::span(features).subspan(r * width, width);
      sample.anchor_uniforms = std::span(uniforms).subspan(r * (tokens - 1), tokens - 1);
      out.push_back(sample);
    }
    return out;
  }
  std::vector<std::int64_t> ids, mask;
  std::vector<float> features, uniforms;
  std::size_t rows = 0;
};

TEST(Anchors, EqualTheOraclesForItsUniforms) {
  for (const std::string name : {"full", "bias_nodecay"}) {
    const Golden golden(name, name == "full" ? "" : "full");
    const Batch batch(golden, "in.input_ids", "in.target_features", "in.loss_mask", "in.anchor_uniforms");
    const std::vector<std::int64_t> anchors = golden.integers("mid.anchors"), keep = golden.integers("mid.keep");
    const std::size_t width = anchors.size() / batch.rows;
    std::size_t r = 0;
    for (const Sample& sample : batch.samples()) {
      std::vector<std::int64_t> expected;
      for (std::size_t j = r * width; j < (r + 1) * width; ++j) {
        if (keep[j] != 0) expected.push_back(anchors[j]);
      }
      EXPECT_EQ(pick_anchors(sample.loss_mask, sample.anchor_uniforms, golden.integer("cfg.num_anchors")), expected);
      ++r;
    }
  }
}

// How far a checkpoint's masters are from the golden's, at most and compared with how far the golden's moved.
struct Drift {
  double largest = 0, ratio = 0;
  std::string where;  // the largest
};
Drift drift_of(const Golden& golden, const model::DraftConfig& config, const std::filesystem::path& checkpoint) {
  const auto ours = std::move(files::open_safetensors(checkpoint / "optimizer.safetensors")).value();
  Drift drift;
  double moved = 0, off = 0;
  for (const nn::NamedSlice& slice : nn::draft_slices(geometry_of(config))) {
    std::vector<float> before = golden.floats("w." + slice.name);
    if (config.dtype == "bfloat16") {
      for (float& value : before) value = c10::BFloat16(value);
    }
    const std::vector<float> after = golden.floats("out.master." + slice.name);
    std::vector<float> mine(after.size());
    files::decode_to_f32(*ours->find("master." + slice.name), 0, slice.count, mine.data());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      moved += std::abs(after[i] - before[i]);
      off += std::abs(mine[i] - after[i]);
      const double distance = std::abs(mine[i] - after[i]);
      if (distance <= drift.largest) continue;
      drift.largest = distance;
      drift.where = slice.name + "[" + std::to_string(i) + "], moved " + std::to_string(after[i] - before[i]);
    }
  }
  drift.ratio = off / moved;
  return drift;
}

class OptimOracle : public testing::TestWithParam<std::string> {};

TEST_P(OptimOracle, TwelveStepsOfTwoMicroBatches) {
  const std::string dtype = GetParam();
  const bool wide = dtype == "float32";
  const Golden golden(wide ? "optim" : "optim_bf16", wide ? "" : "optim");
  const model::DraftConfig config = config_of(golden, 8, dtype);
  Options options;
  options.batch_size = 2;
  options.accumulation_steps = golden.integer("cfg.accum");
  options.total_steps = golden.integer("cfg.total_steps");
  options.warmup_ratio = 0.25;
  options.learning_rate = 6e-4;
  options.max_grad_norm = 1;
  options.loss_decay_gamma = golden.floats("cfg.gamma").front();
  options.num_anchors = golden.integer("cfg.num_anchors");
  options.torch_dtype = dtype;
  options.device = kDevice;
  options.threads = 1;
  const TemporaryFolder folder;
  options.output_dir = folder.path() / "out";
  auto trainer = std::move(DflashTrainer::create(options, config, tables_of(golden, 8, dtype))).value();
  export_golden(golden, config, folder.path());
  const Status loaded = trainer->load_weights(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();

  const std::vector<float> log = golden.floats("out.loss_norm_lr");
  for (std::int64_t s = 0; s < options.total_steps; ++s) {
    std::vector<Batch> micro;
    std::vector<Sample> samples;
    for (int a = 0; a < 2; ++a) {
      const std::string in = "in.step" + std::to_string(s) + ".micro" + std::to_string(a) + ".";
      micro.emplace_back(golden, in + "ids", in + "feats", in + "mask", in + "u");
    }
    for (const Batch& batch : micro) {
      for (const Sample& sample : batch.samples()) samples.push_back(sample);
    }
    const StepReport report = must_step(*trainer, samples);
    const std::size_t at = static_cast<std::size_t>(s) * 3;
    if (wide) {
      EXPECT_NEAR(report.metrics.loss(), log[at], 1e-5 * log[at]) << "step " << s;
      EXPECT_NEAR(report.grad_norm, log[at + 1], 1e-5 * log[at + 1]) << "step " << s;
    } else {
      EXPECT_NEAR(report.metrics.loss(), log[at], 1e-2) << "step " << s;
      EXPECT_NEAR(report.grad_norm, log[at + 1], 1e-2 * log[at + 1]) << "step " << s;
    }
    EXPECT_NEAR(report.learning_rate, log[at + 2], 1e-7 * log[at + 2]) << "the log is float32";
  }
  const auto checkpoint = trainer->save();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  const Drift drift = drift_of(golden, config, *checkpoint);
  if (wide) {
    EXPECT_LE(drift.largest, 1e-5) << drift.where;
  }
  EXPECT_LE(drift.ratio, wide ? 1e-5 : 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Types, OptimOracle, testing::Values("float32", "bfloat16"));

TEST(DecodeOracle, HeldOutEvaluationOfATrainedDraft) {
  const Golden golden("decode");
  const model::DraftConfig config = config_of(golden, 6 + 2, "float32");
  Options options;
  options.batch_size = 4;
  options.total_steps = 1;
  options.num_anchors = golden.integer("cfg.num_anchors");
  options.loss_decay_gamma = golden.floats("cfg.gamma").front();
  options.torch_dtype = "float32";
  options.device = kDevice;
  options.threads = 1;
  auto trainer = std::move(DflashTrainer::create(options, config, tables_of(golden, 8, "float32"))).value();
  const TemporaryFolder folder;
  export_golden(golden, config, folder.path());
  ASSERT_TRUE(trainer->load_weights(folder.path()).ok());
  const Batch batch(golden, "in.eval.input_ids", "in.eval.target_features", "in.eval.loss_mask",
                    "in.eval.anchor_uniforms");
  const Metrics metrics = std::move(trainer->evaluate(batch.samples())).value();
  EXPECT_NEAR(metrics.loss(), golden.floats("out.eval.loss").front(), 1e-5 * metrics.loss());
  EXPECT_EQ(metrics.hits, golden.floats("out.eval.acc_num").front());
  EXPECT_EQ(metrics.slots, golden.floats("out.eval.acc_den").front());
  EXPECT_NEAR(metrics.tau(), golden.floats("out.eval.mean_accept_len").front(), 1e-6);
  double prefix = 0;
  for (std::int64_t length : golden.integers("out.eval.accept_prefix_len")) prefix += static_cast<double>(length);
  EXPECT_EQ(metrics.accepted_prefix, prefix);
  EXPECT_GT(metrics.accuracy(), 0.4) << "a draft that learnt something, or the comparison would say little";
}

#ifdef LEVADA_TRAIN_ON_CUDA
TEST(DecodeOracle, FeaturesInDeviceMemoryGiveTheSameLoss) {
  const Golden golden("decode");
  const model::DraftConfig config = config_of(golden, 6 + 2, "float32");
  Options options;
  options.batch_size = 4;
  options.total_steps = 1;
  options.num_anchors = golden.integer("cfg.num_anchors");
  options.torch_dtype = "float32";
  options.device = kDevice;
  auto trainer = std::move(DflashTrainer::create(options, config, tables_of(golden, 8, "float32"))).value();
  const Batch batch(golden, "in.eval.input_ids", "in.eval.target_features", "in.eval.loss_mask",
                    "in.eval.anchor_uniforms");
  std::vector<Sample> samples = batch.samples();
  const double from_host = std::move(trainer->evaluate(samples)).value().loss();
  std::vector<at::Tensor> kept;
  for (Sample& sample : samples) {
    const std::span<const float> host = sample.hidden_states_f32;
    kept.push_back(at::from_blob(const_cast<float*>(host.data()), {static_cast<std::int64_t>(host.size())},
                                 at::TensorOptions().dtype(at::kFloat))
                       .to(at::Device(at::kCUDA, 0)));
    sample.hidden_states_f32 = {kept.back().data_ptr<float>(), host.size()};
    sample.features_on_device = true;
  }
  EXPECT_EQ(std::move(trainer->evaluate(samples)).value().loss(), from_host);
}
#else
TEST(DecodeOracle, FeaturesOnADeviceAreRefusedByATrainerOnTheCpu) {
  const Golden golden("decode");
  const model::DraftConfig config = config_of(golden, 6 + 2, "float32");
  Options options;
  options.total_steps = 1;
  options.torch_dtype = "float32";
  auto trainer = std::move(DflashTrainer::create(options, config, tables_of(golden, 8, "float32"))).value();
  const Batch batch(golden, "in.eval.input_ids", "in.eval.target_features", "in.eval.loss_mask",
                    "in.eval.anchor_uniforms");
  std::vector<Sample> samples = batch.samples();
  samples.front().features_on_device = true;
  const Result<Metrics> metrics = trainer->evaluate(std::span(samples).first(1));
  ASSERT_FALSE(metrics.ok());
  EXPECT_EQ(metrics.status().field(), "hidden_states");
}
#endif

TEST(Schedule, WarmsUpThenFollowsTheReferencesCosine) {
  const Schedule cosine{6e-4, 12, 0.25, true}, constant{6e-4, 12, 0.25, false};
  EXPECT_NEAR(cosine.rate(0), 2e-4, 1e-12);
  EXPECT_NEAR(cosine.rate(2), 6e-4, 1e-12);
  const double quirk = 1 + std::cos(M_PI / 9);
  for (std::int64_t s = 3; s < 12; ++s) {
    EXPECT_NEAR(cosine.rate(s), 6e-4 * (1 + std::cos(M_PI * static_cast<double>(s - 3) / 9)) / quirk, 1e-12);
    EXPECT_EQ(constant.rate(s), 6e-4);
  }
  EXPECT_EQ(cosine.rate(500), cosine.rate(11)) << "never below the last step's";
  EXPECT_EQ((Schedule{1e-3, 1, 0, true}).rate(0), 1e-3) << "one step has no curve";
}

}  // namespace
}  // namespace levada::train
