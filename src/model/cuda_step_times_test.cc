// What a draft costs a step: times of every kind of step in the geometry of SmolLM2-135M and its draft, random weights in
// bfloat16. Prints a table; fails where a step with drafts is slower than what it is worth. Fails where there is no GPU.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "kernels/bf16.h"
#include "model/cuda/factory.h"
#include "model/draft_support_test.h"
#include "model/rope.h"

namespace levada::model {
namespace {

// Small numbers, the same for every checkpoint, fast to make.
void fill(std::int64_t count, DType dtype, std::int64_t columns, std::uint64_t seed, void* out) {
  const float size = 1.7f / std::sqrt(static_cast<float>(columns));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float x = (static_cast<float>(state >> 40) / 8388608.0f - 1.0f) * size;
    if (dtype == DType::kF32) {
      static_cast<float*>(out)[i] = 1;
    } else {
      static_cast<kernels::Bf16*>(out)[i] = kernels::to_bf16(x);
    }
  }
}

class SmolSized final : public DecoderSource {
 public:
  SmolSized() {
    config_.architecture = "llama";
    config_.hidden = 576, config_.layers = 30, config_.heads = 9, config_.kv_heads = 3, config_.head_dim = 64;
    config_.intermediate = 1536, config_.vocabulary = 49152, config_.context = 8192, config_.norm_eps = 1e-5f;
    config_.tied = true;
    config_.rope.theta = 100'000;
    info_.path = "random";
    info_.vocab_size = 49152, info_.hidden_size = 576, info_.num_layers = 30, info_.context_length_tokens = 8192;
  }
  const ModelConfig& config() const override { return config_; }
  const core::ModelInfo& info() const override { return info_; }
  void read(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
            void* out) override {
    const std::int64_t columns = weight == Weight::kDown ? 1536 : 576;
    fill(dtype == DType::kF32 ? count : count * columns, dtype, columns,
         static_cast<std::uint64_t>(layer * 1000 + static_cast<std::int64_t>(weight) * 50'000 + first), out);
  }
  void fill_cos_sin(float* out) override { model::fill_cos_sin(config_.rope, config_.head_dim, config_.context, out); }

 private:
  ModelConfig config_;
  core::ModelInfo info_;
};

DraftConfig draft_config() {
  DraftConfig c;
  c.hidden = 576, c.intermediate = 1536, c.layers = 4, c.heads = 9, c.kv_heads = 3, c.head_dim = 64;
  c.vocabulary = 49152, c.block_size = 8, c.mask_token_id = 16, c.num_target_layers = 30;
  c.target_layer_ids = {1, 8, 14, 20, 27};
  c.rope_theta = 100'000, c.sliding = {false, false, false, false}, c.max_positions = 8192;
  return c;
}

class RandomDraft final : public DraftSource, public DraftOpener {
 public:
  Result<std::unique_ptr<DraftSource>> open(const std::filesystem::path&) const override {
    return std::unique_ptr<DraftSource>(std::make_unique<RandomDraft>());
  }
  const DraftConfig& config() const override { return config_; }
  bool wide() const override { return false; }
  bool has(DraftWeight) const override { return false; }
  const std::vector<std::int32_t>& draft_ids() const override { return ids_; }
  void read(DraftWeight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
            void* out) const override {
    const std::int64_t columns = weight == DraftWeight::kFc ? 5 * 576 : weight == DraftWeight::kDown ? 1536 : 576;
    fill(dtype == DType::kF32 ? count : count * columns, dtype, columns,
         static_cast<std::uint64_t>(layer * 7000 + static_cast<std::int64_t>(weight) * 90'000 + first), out);
  }
  void fill_cos_sin(std::int64_t positions, float* out) const override {
    model::fill_cos_sin({.theta = config_.rope_theta}, config_.head_dim, positions, out);
  }

 private:
  const DraftConfig config_ = draft_config();
  const std::vector<std::int32_t> ids_;
};

class CudaStepTimes : public testing::Test {
 protected:
  CudaStepTimes() {
    device = std::move(device::open_device(device::DeviceKind::kCuda)).value();
    CudaModelOptions options;
    options.warmup_folder = warmup.path().string();
    options.draft_room = room_for(draft_config());
    options.drafts = std::make_shared<RandomDraft>();
    model = std::move(make_cuda_model(weights, options, *device)).value();
    pool = std::move(model->make_kv_pool(4096)).value();
    const auto before = std::chrono::steady_clock::now();
    draft = std::move(model->load_draft({})).value();
    std::printf("draft of %.1f MB loaded in %.1f ms\n", static_cast<double>(draft->bytes()) / 1e6,
                std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count());
  }
  // `requests` of `context` tokens, each with `drafts` drafts to verify and so many to propose.
  core::StepPlan plan_of(int requests, int context, int drafts, int propose, bool drafted) const {
    core::StepPlan plan;
    std::int32_t page = 0;
    for (int r = 0; r < requests; ++r) {
      Sequence s;
      s.computed = context;
      for (int t = 0; t < context + 1 + drafts; ++t) s.tokens.push_back((t * 7919 + r * 104729) % 49152);
      for (auto n = model->kv_layout().pages_for(context + 32); n > 0; --n) s.pages.push_back(page++);
      add_slice(plan, s, {1 + drafts, drafts, propose, 0});
    }
    if (!drafted) plan.draft = core::kNoDraft;
    return plan;
  }
  // Median milliseconds of a step; `waited`: each result is waited for before the next step begins.
  double time(const core::StepPlan& plan, bool waited) {
    const auto run = [&](int steps) {
      std::vector<std::unique_ptr<SampledTokens>> results;
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < steps; ++i) {
        auto forward = std::move(model->begin(plan, *pool, plan.draft == core::kNoDraft ? nullptr : draft)).value();
        EXPECT_TRUE(forward->all_layers().ok());
        results.push_back(std::move(forward->sample()).value());
        if (waited) {
          EXPECT_TRUE(results.back()->wait().ok());
        }
      }
      if (!waited) {
        EXPECT_TRUE(results.back()->wait().ok());
      }
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / steps;
    };
    run(5);
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) times.push_back(run(20));
    std::sort(times.begin(), times.end());
    return times[3];
  }

  test::TemporaryFolder warmup;
  SmolSized weights;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvPool> pool;
  std::shared_ptr<const Draft> draft;
};

TEST_F(CudaStepTimes, DraftsCostLittle) {
  std::printf("ms a step, one after the other (and: each waited for)\n%-10s%-9s%18s%18s%18s%18s%18s%18s\n", "requests",
              "context", "plain", "+ context", "+ propose 7", "verify 7", "+ context", "+ propose 7");
  double plain_1 = 0, whole_1 = 0, plain_16 = 0, whole_16 = 0;
  for (const auto& [requests, context] :
       {std::pair{1, 250}, {1, 700}, {2, 250}, {4, 250}, {8, 250}, {16, 250}, {16, 700}, {32, 250}}) {
    std::printf("%-10d%-9d", requests, context);
    double ms = 0;
    for (const auto& [drafts, propose, drafted] :
         {std::tuple{0, 0, false}, {0, 0, true}, {0, 7, true}, {7, 0, false}, {7, 0, true}, {7, 7, true}}) {
      const core::StepPlan plan = plan_of(requests, context, drafts, propose, drafted);
      ms = time(plan, false);
      std::printf("%9.3f (%6.3f)", ms, time(plan, true));
      if (drafts == 0 && !drafted && context == 250) (requests == 1 ? plain_1 : requests == 16 ? plain_16 : ms) = ms;
    }
    std::printf("\n");
    std::fflush(stdout);
    if (context == 250) (requests == 1 ? whole_1 : requests == 16 ? whole_16 : ms) = ms;
  }
  std::printf("whole step against plain: %.2f at 1 request, %.2f at 16\n", whole_1 / plain_1, whole_16 / plain_16);
  for (const int block : {2, 4, 6}) {
    const double one = time(plan_of(1, 250, block - 1, block - 1, true), false),
                 many = time(plan_of(16, 250, block - 1, block - 1, true), false);
    std::printf("blocks of %d: %.3f ms at 1 request, %.3f at 16\n", block, one, many);
  }
  EXPECT_LT(whole_1, 1.5 * plain_1);
  EXPECT_LT(whole_16, 2.2 * plain_16);
}

// The step that takes another draft of the same geometry, against one that doesn't.
TEST_F(CudaStepTimes, ASwapIsShorterThanAStep) {
  const auto other = std::move(model->load_draft({})).value();
  const core::StepPlan plan = plan_of(1, 250, 7, 7, true);
  const auto step = [&](const std::shared_ptr<const Draft>& with) {
    const auto begin = std::chrono::steady_clock::now();
    auto forward = std::move(model->begin(plan, *pool, with)).value();
    EXPECT_TRUE(forward->all_layers().ok());
    EXPECT_TRUE(std::move(forward->sample()).value()->wait().ok());
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<double> kept, swapped;
  for (int i = 0; i < 40; ++i) step(draft);
  for (int i = 0; i < 41; ++i) {
    swapped.push_back(step(i % 2 == 0 ? other : draft));
    kept.push_back(step(i % 2 == 0 ? other : draft));
  }
  std::sort(kept.begin(), kept.end());
  std::sort(swapped.begin(), swapped.end());
  std::printf("a step that swaps drafts takes %.3f ms, one that doesn't %.3f\n", swapped[20], kept[20]);
  EXPECT_LT(swapped[20], 2 * kept[20]);
}

}  // namespace
}  // namespace levada::model
