#include "bench/serving.h"

#include <gtest/gtest.h>

#include "bench/captures.h"
#include "bench/cuda_bench.h"
#include "bench/random_decoder.h"

namespace levada::bench {
namespace {

struct TinyServing {
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  std::unique_ptr<Captures> captures;
  std::unique_ptr<Serving> serving;
  TinyServing() {
    auto model = std::move(model::load_model(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama", {}, *device)).value();
    auto pool = std::move(model->make_kv_pool(256)).value();
    captures = std::make_unique<Captures>(model->info(), 5, 20, device.get());
    serving = std::make_unique<Serving>(std::move(model), std::move(pool), 8, 64, nullptr, captures.get());
  }
};

TEST(Serving, RunReturnsWhenEveryRequestHasItsTokens) {
  TinyServing tiny;
  for (int turn = 0; turn < 2; ++turn) {
    const Timing timing = tiny.serving->run({.requests = 5, .prompt_tokens = 20, .new_tokens = 6}).value();
    EXPECT_GT(timing.first_s, 0);
    EXPECT_GT(timing.end_s, timing.first_s);
    EXPECT_GE(timing.tokens_at_first, 5);
    EXPECT_LT(timing.tokens_at_first, 5 * 6);
  }
}

TEST(Serving, ACapturedRequestEndsWhenItsSampleIsReadableAndTheNextRunHasItsSpaceAgain) {
  TinyServing tiny;
  for (int turn = 0; turn < 3; ++turn) {
    const Load load{.requests = 5, .prompt_tokens = 20, .new_tokens = 1, .captured = true};
    const Result<Timing> timing = tiny.serving->run(load);
    ASSERT_TRUE(timing.ok()) << timing.status().to_string();
    EXPECT_GE(timing->end_s, timing->first_s);
  }
}

TEST(Serving, ARequestThatCannotRunIsItsError) {
  TinyServing tiny;
  EXPECT_FALSE(tiny.serving->run({.requests = 2, .prompt_tokens = 1 << 20, .new_tokens = 2}).ok());
  EXPECT_TRUE(tiny.serving->run({.requests = 1, .prompt_tokens = 3, .new_tokens = 2}).ok());
}

TEST(RandomDecoder, ShapesHaveTheirPublishedNumberOfWeights) {
  EXPECT_EQ(RandomDecoder::of_shape("smollm2").value().info().parameters / 1'000'000, 134);
  EXPECT_EQ(RandomDecoder::of_shape("qwen3-8b").value().info().parameters / 1'000'000, 8'190);
  EXPECT_EQ(RandomDecoder::of_shape("gpt-5").status().code(), StatusCode::kInvalidArgument);
}

TEST(RandomDecoder, RowsReadOneByOneEqualThoseReadAtOnce) {
  RandomDecoder weights = RandomDecoder::of_shape("smollm2").value();
  std::vector<std::uint16_t> all(40 * 1536), one(1536);
  weights.read(model::Weight::kDown, 3, 10, 40, DType::kBF16, all.data());
  for (std::int64_t row = 0; row < 40; ++row) {
    weights.read(model::Weight::kDown, 3, 10 + row, 1, DType::kBF16, one.data());
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + row * 1536)) << row;
  }
}

TEST(CudaBench, AnUnknownShapeIsRefusedWithTheKnownOnes) {
  const Status status = run_cuda_bench("gpt-5", 1, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("smollm2, qwen3-8b"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace levada::bench
