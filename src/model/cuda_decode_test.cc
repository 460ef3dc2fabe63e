// Decode steps of many requests as recorded graphs, against each request alone. Random weights, heads of 64 in bfloat16.
// Fails where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/bf16.h"
#include "model/cuda/factory.h"
#include "model/model_support_test.h"
#include "model/rope.h"

namespace levada::model {
namespace {

// Matrices of normal numbers that keep activations of size one, norms of ones.
class RandomWeights final : public DecoderSource {
 public:
  RandomWeights() {
    config_.architecture = "llama";
    config_.hidden = 256, config_.layers = 3, config_.heads = 6, config_.kv_heads = 2, config_.head_dim = 64;
    config_.intermediate = 512, config_.vocabulary = 1000, config_.context = 4096, config_.norm_eps = 1e-5f;
    config_.rope.theta = 10'000;
    info_.path = "random";
    info_.vocab_size = 1000, info_.hidden_size = 256, info_.num_layers = 3, info_.context_length_tokens = 4096;
  }
  const ModelConfig& config() const override { return config_; }
  const core::ModelInfo& info() const override { return info_; }
  void read(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
            void* out) override {
    if (dtype == DType::kF32) {
      std::fill_n(static_cast<float*>(out), count, 1.0f);
      return;
    }
    const std::int64_t columns = columns_of(weight);
    std::mt19937 bits(static_cast<unsigned>((layer * 16 + static_cast<std::int64_t>(weight)) * 10'000 + first));
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(columns)));
    std::generate_n(static_cast<kernels::Bf16*>(out), count * columns, [&] { return kernels::to_bf16(normal(bits)); });
  }
  void fill_cos_sin(float* out) override { model::fill_cos_sin(config_.rope, config_.head_dim, config_.context, out); }

 private:
  std::int64_t columns_of(Weight weight) const {
    return weight == Weight::kO      ? config_.heads * config_.head_dim
           : weight == Weight::kDown ? config_.intermediate
                                     : config_.hidden;
  }
  ModelConfig config_;
  core::ModelInfo info_;
};

struct CudaDecode : testing::Test {
  CudaDecode() {
    device = std::move(device::open_device(device::DeviceKind::kCuda)).value();
    model = std::move(make_cuda_model(weights, {.max_graph_rows = 64, .max_verify_rows = 4}, *device)).value();
    pool = std::move(model->make_kv_pool(kPages)).value();
    for (std::int32_t page = 0; page < kPages; ++page) free.push_back(page);
    std::shuffle(free.begin(), free.end(), random);
    for (std::int32_t page : free) pool->poison(page);
  }
  // All but the last `left` of so many random tokens are computed.
  Sequence prefilled(int tokens, int left) {
    Sequence s;
    for (int i = 0; i < tokens; ++i) s.tokens.push_back(static_cast<core::Token>(random() % 1000));
    for (auto n = model->kv_layout().pages_for(tokens); n > 0; --n) {
      s.pages.push_back(free.back());
      free.pop_back();
    }
    PlanBuilder builder;
    builder.add(s, tokens - left);
    auto forward = std::move(model->begin(builder.plan(), *pool)).value();
    EXPECT_TRUE(forward->all_layers().ok());
    EXPECT_TRUE(std::move(forward->sample()).value()->wait().ok());
    return s;
  }
  std::vector<float> logits_alone(Sequence s) {
    PlanBuilder builder;
    builder.add(s, 1);
    auto forward = std::move(model->begin(builder.plan(), *pool)).value();
    for (int l = 0; l < model->info().num_layers; ++l) EXPECT_TRUE(forward->layer(l).ok());
    const std::int32_t row = 0;
    const device::TensorView logits = std::move(forward->logits({&row, 1})).value();
    return {logits.as<float>(), logits.as<float>() + logits.elements()};
  }
  // One step over all of them, `each` rows of every one; each token must be the best one alone, or as good but for
  // rounding.
  void expect_same_choices(const std::vector<int>& lengths, int each = 1) {
    std::vector<Sequence> all;
    for (const int length : lengths) all.push_back(prefilled(length, each));
    PlanBuilder builder;
    for (Sequence& s : all) builder.add(s, each, /*sample_all=*/true);
    auto forward = std::move(model->begin(builder.plan(), *pool)).value();
    ASSERT_TRUE(forward->all_layers().ok());
    const auto chosen = std::move(forward->sample()).value()->wait();
    ASSERT_TRUE(chosen.ok());
    const auto rows = static_cast<std::size_t>(each);
    for (std::size_t i = 0; i < all.size() * rows; ++i) {
      Sequence s = all[i / rows];
      s.computed += static_cast<std::int32_t>(i % rows) - each;
      const std::vector<float> alone = logits_alone(s);
      const float best = *std::max_element(alone.begin(), alone.end());
      EXPECT_GT(alone[static_cast<std::size_t>(chosen.value().sampled[i])], best - 0.1f)
          << "request " << i / rows << ", row " << i % rows << ", best " << best;
    }
  }

  static constexpr std::int32_t kPages = 4096;
  std::mt19937 random{5};
  RandomWeights weights;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvPool> pool;
  std::vector<std::int32_t> free;
};

TEST_F(CudaDecode, ManyShortRequestsInOneGraphChooseWhatEachWouldAlone) {
  std::vector<int> lengths;
  for (int i = 0; i < 37; ++i) lengths.push_back(2 + 9 * i);
  expect_same_choices(lengths);
}

TEST_F(CudaDecode, ManyLongRequestsInOneGraphChooseWhatEachWouldAlone) {
  std::vector<int> lengths;
  for (int i = 0; i < 21; ++i) lengths.push_back(i % 4 == 0 ? 3 + i : 1000 + 100 * i);
  expect_same_choices(lengths);
  // The same graph again, with others.
  std::reverse(lengths.begin(), lengths.end());
  lengths.resize(17);
  expect_same_choices(lengths);
}

TEST_F(CudaDecode, StepsOfSeveralRowsEachChooseWhatEachRowWouldAlone) {
  for (const int each : {2, 3, 4}) {
    SCOPED_TRACE(std::to_string(each) + " rows each");
    expect_same_choices({1000, 2500, 700}, each);  // recorded here
    expect_same_choices({1700, 8, 3000}, each);    // replayed
    expect_same_choices({12, 9, 200}, each);       // short contexts: as decode rows
  }
  expect_same_choices({900, 1100}, 7);  // more rows each than are recorded
}

TEST_F(CudaDecode, RecordingAGraphInBetweenLeavesTheTokensOfTheStepBefore) {
  Sequence s = prefilled(2000, 1);
  PlanBuilder first;
  first.add(s, 1);
  auto one = std::move(model->begin(first.plan(), *pool)).value();
  ASSERT_TRUE(one->all_layers().ok());
  auto token = std::move(one->sample()).value();
  // Its token isn't known on the host; the step of two rows is the first of its shape.
  s.tokens.insert(s.tokens.end(), {0, 77});
  s.pages.push_back(free.back());
  free.pop_back();
  Sequence again = s;
  PlanBuilder second;
  second.add(s, 2, /*sample_all=*/true);
  second.plan().future_tokens = {{.row = 0, .previous_sample = 0}};
  auto two = std::move(model->begin(second.plan(), *pool)).value();
  ASSERT_TRUE(two->all_layers().ok());
  const auto chosen = std::move(two->sample()).value()->wait();
  again.tokens[2000] = token->wait().value().sampled.front();
  for (std::size_t row = 0; row < 2; ++row, ++again.computed) {
    const std::vector<float> alone = logits_alone(again);
    EXPECT_GT(alone[static_cast<std::size_t>(chosen.value().sampled[row])],
              *std::max_element(alone.begin(), alone.end()) - 0.1f);
  }
}

}  // namespace
}  // namespace levada::model
