#include "bench/train_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "train/dflash_trainer.h"

namespace levada::bench {
namespace {

constexpr std::int64_t kTokens = 512, kVocabulary = 49152, kTargetLayers = 30;

model::DraftConfig smollm2_draft(std::int64_t block) {
  model::DraftConfig c;
  c.hidden = 576;
  c.intermediate = 1536;
  c.layers = 4;
  c.heads = 9;
  c.kv_heads = 3;
  c.head_dim = 64;
  c.vocabulary = kVocabulary;
  c.block_size = block;
  c.mask_token_id = 16;
  c.num_target_layers = kTargetLayers;
  c.target_layer_ids = {1, 8, 14, 20, 27};
  c.norm_eps = 1e-5;
  c.rope_theta = 1e5;
  c.sliding.assign(4, false);
  return c;
}

// A prompt of a quarter and an answer of three quarters.
struct RandomSample {
  explicit RandomSample(const model::DraftConfig& config) {
    std::mt19937 random(3);
    for (std::int64_t t = 0; t < kTokens; ++t) {
      ids.push_back(100 + static_cast<std::int64_t>(random() % 39900));
      mask.push_back(t < kTokens / 4 ? 0 : 1);
    }
    // Any sign and mantissa with an exponent near 0: numbers between -2 and 2.
    for (std::int64_t i = 0; i < kTokens * config.features(); ++i) {
      features.push_back(static_cast<std::uint16_t>(0x3f00u | (random() & 0x80ffu)));
    }
  }
  train::Sample sample() const { return {"bench", 0, ids, mask, features, {}, {}}; }
  std::vector<std::int64_t> ids, mask;
  std::vector<std::uint16_t> features;
};

double peak_mib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct Shape {
  std::int64_t block, anchors;
  const char* dtype;
  double samples;
  std::int64_t batch = 1;
};

// The step's time, and what the trainer holds for it.
Status measure(const Shape& shape, const std::string& device, double scale, std::vector<Case>& cases) {
  train::Options options;
  options.total_steps = 1000;
  options.num_anchors = shape.anchors;
  options.loss_decay_gamma = 4;
  options.torch_dtype = shape.dtype;
  options.batch_size = shape.batch;
  options.device = device;
  const model::DraftConfig config = smollm2_draft(shape.block);
  LEVADA_ASSIGN_OR_RETURN(
      const auto trainer,
      train::DflashTrainer::create(
          options, config, train::random_frozen_tables(kVocabulary, config.hidden, kTargetLayers, shape.dtype)));
  const RandomSample random(config);
  const std::vector<train::Sample> batch(static_cast<std::size_t>(shape.batch), random.sample());
  const std::string name = std::to_string(shape.block) + "x" + std::to_string(shape.anchors) +
                           (shape.dtype == std::string("float32") ? "_f32" : "_bf16") +
                           (shape.batch > 1 ? "_" + std::to_string(shape.batch) + "_samples" : "");
  Status failed;
  const auto samples = std::max(1, static_cast<std::int32_t>(std::lround(shape.samples * scale)));
  cases.push_back(sample_us(
      "dflash_step_" + name, {.samples = samples, .warmup = 1}, [] {},
      [&] {
        const Result<train::StepReport> report = trainer->step(batch);
        if (!report.ok()) failed = report.status();
      }));
  if (device != "cpu") {
    const double held = static_cast<double>(trainer->memory_bytes()) / (1 << 20);
    cases.push_back({"trainer_memory_" + name, held, held, "MiB", 1});
  }
  return failed;
}

}  // namespace

Result<std::vector<Case>> run_train_bench(double scale, const std::string& device) {
  const std::vector<Shape> on_cpu{{4, 64, "float32", 5},
                                  {8, 128, "float32", 5},
                                  {16, 256, "float32", 3},
                                  {8, 128, "bfloat16", 5},
                                  {16, 256, "bfloat16", 3}};
  const std::vector<Shape> on_gpu{
      {8, 128, "bfloat16", 20, 32}, {16, 256, "bfloat16", 20, 8}, {8, 128, "bfloat16", 20}, {8, 128, "float32", 10}};
  std::vector<Case> cases;
  for (const Shape& shape : device == "cpu" ? on_cpu : on_gpu) {
    LEVADA_RETURN_IF_ERROR(measure(shape, device, scale, cases));
  }
  cases.push_back({"peak_memory", peak_mib(), peak_mib(), "MiB", 1});
  return cases;
}

}  // namespace levada::bench
