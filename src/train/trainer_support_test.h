// What: what the trainer's tests share: a small random draft with its tables, samples, and comparisons of states.
// Owner: the test.
// Thread: one.
// Invariant: everything is drawn from the seeds given; states are compared through what a trainer exports and saves.
#pragma once

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "support/temporary_folder.h"
#include "train/dflash_trainer.h"
#include "train/frozen_tensors.h"

namespace levada::train::test {

using levada::test::TemporaryFolder;

inline model::DraftConfig small_config() {
  model::DraftConfig c;
  c.hidden = 32;
  c.intermediate = 48;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.vocabulary = 97;
  c.block_size = 4;
  c.mask_token_id = 96;
  c.num_target_layers = 8;
  c.target_layer_ids = {1, 3, 5};
  c.sliding = {true, false};
  c.sliding_window = 6;
  c.dtype = "float32";
  return c;
}

inline Options small_options() {
  Options o;
  o.batch_size = 2;
  o.accumulation_steps = 2;
  o.total_steps = 10;
  o.learning_rate = 1e-2;
  o.warmup_ratio = 0.2;
  o.max_grad_norm = 1;
  o.loss_decay_gamma = 2;
  o.num_anchors = 5;
  o.threads = 1;
  o.torch_dtype = "float32";
  return o;
}

inline at::Tensor random_table(std::int64_t rows, std::int64_t width, unsigned seed, const std::string& dtype) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.5f);
  const at::Tensor table = at::empty({rows, width}, at::TensorOptions().dtype(at::kFloat));
  for (std::int64_t i = 0; i < table.numel(); ++i) table.data_ptr<float>()[i] = normal(random);
  return dtype == "float32" ? table : table.to(at::kBFloat16);
}

inline std::shared_ptr<const FrozenTables> small_tables(const model::DraftConfig& c,
                                                        const std::string& dtype = "float32") {
  return std::make_shared<FrozenTensors>(random_table(c.vocabulary, c.hidden, 1, dtype),
                                         random_table(c.vocabulary, c.hidden, 2, dtype), c.num_target_layers);
}

// A sample that owns its bytes.
struct OwnedSample {
  std::string id;
  std::vector<std::int64_t> ids, mask;
  std::vector<std::uint16_t> features;

  OwnedSample(const model::DraftConfig& c, std::int64_t tokens, unsigned seed) : id("sample-" + std::to_string(seed)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(c.vocabulary - 1)));
      mask.push_back(t < tokens / 4 ? 0 : 1);
      for (std::int64_t i = 0; i < c.features(); ++i) features.push_back(c10::BFloat16(normal(random)).x);
    }
  }
  // Zeros to the right, as a padded batch would have them.
  void pad(const model::DraftConfig& c, std::size_t tokens) {
    ids.resize(ids.size() + tokens);
    mask.resize(mask.size() + tokens);
    features.resize(features.size() + tokens * static_cast<std::size_t>(c.features()));
  }
  Sample sample(std::uint32_t epoch = 0) const { return {id, epoch, ids, mask, features, {}, {}}; }
};

struct Samples {
  Samples(const model::DraftConfig& c, int count, unsigned seed = 100) {
    for (int i = 0; i < count; ++i) owned.emplace_back(c, 20 + 3 * (i % 5), seed + static_cast<unsigned>(i));
  }
  std::vector<Sample> some(std::size_t first, std::size_t count) const {
    std::vector<Sample> out;
    for (std::size_t i = first; i < first + count; ++i) out.push_back(owned[i % owned.size()].sample());
    return out;
  }
  std::vector<OwnedSample> owned;
};

inline std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

// The exported weights as bytes: equal strings are bitwise equal drafts.
inline std::string weights_of(DflashTrainer& trainer) {
  const TemporaryFolder folder;
  const Status status = trainer.export_to(folder.path());
  EXPECT_TRUE(status.ok()) << status.to_string();
  return content(folder.path() / "model.safetensors");
}

// The largest difference between two exported float32 drafts.
inline float difference(const std::string& a, const std::string& b) {
  std::uint64_t header = 0;
  EXPECT_EQ(a.size(), b.size());
  std::memcpy(&header, a.data(), 8);
  float largest = 0;
  for (std::size_t at = 8 + header; at + 4 <= a.size(); at += 4) {
    float x, y;
    std::memcpy(&x, a.data() + at, 4);
    std::memcpy(&y, b.data() + at, 4);
    largest = std::max(largest, std::abs(x - y));
  }
  return largest;
}

inline std::unique_ptr<DflashTrainer> make_trainer(const Options& options, const model::DraftConfig& config) {
  Result<std::unique_ptr<DflashTrainer>> made =
      DflashTrainer::create(options, config, small_tables(config, options.torch_dtype));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(made).value();
}

inline StepReport must_step(DflashTrainer& trainer, std::span<const Sample> samples) {
  Result<StepReport> report = trainer.step(samples);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return report.ok() ? *report : StepReport();
}

}  // namespace levada::train::test
