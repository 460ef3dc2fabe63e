// The tiny checkpoints on a GPU, in float32 and bfloat16, and the CUDA device itself. Fails where there is no GPU.
#include "device/layer_ready.h"
#include "model/model_support_test.h"

namespace levada::model {
namespace {

std::unique_ptr<device::Device> open_gpu() {
  auto device = device::open_device(device::DeviceKind::kCuda);
  if (!device.ok()) {
    ADD_FAILURE() << device.status().to_string();
    std::exit(1);
  }
  return std::move(device).value();
}

double relative_error(std::span<const float> actual, std::span<const float> expected) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(static_cast<double>(actual[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);
}

class CudaGolden : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return vectors() / "tiny" / GetParam(); }
  Matrix run_whole(Bench& bench, const std::string& prompt) {
    Sequence sequence = bench.sequence(golden.ids(prompt + ".ids"));
    const auto count = static_cast<std::int32_t>(sequence.tokens.size());
    return bench.run(PlanBuilder().add(sequence, count, true).plan());
  }
  std::unique_ptr<device::Device> device = open_gpu();
  Golden golden{GetParam()};
};

TEST_P(CudaGolden, Float32LogitsAreWithinOneThousandth) {
  Bench bench(folder(), in_float32(), *device);
  for (const std::string prompt : {"p1", "p37", "p200"}) {
    const Matrix logits = run_whole(bench, prompt);
    EXPECT_LE(largest_difference(logits.values, golden.matrix(prompt + ".logits").values), 1e-3f) << prompt;
  }
}

TEST_P(CudaGolden, Float32GreedyIdsAreExact) {
  Bench bench(folder(), in_float32(), *device);
  for (const std::string prompt : {"p1", "p37", "p200"}) {
    EXPECT_EQ(bench.greedy(bench.sequence(golden.ids(prompt + ".ids"), 16), 16), golden.ids(prompt + ".greedy"))
        << prompt;
  }
}

TEST_P(CudaGolden, BfloatLogitsStayNear) {
  ModelOptions options = in_float32();
  options.dtype = "bfloat16";
  Bench bench(folder(), options, *device);
  for (const std::string prompt : {"p1", "p37", "p200"}) {
    const Matrix logits = run_whole(bench, prompt);
    EXPECT_LT(relative_error(logits.values, golden.matrix(prompt + ".logits").values), 0.05) << prompt;
  }
}

TEST_P(CudaGolden, AMixedBatchOfChunksAndDecodeRowsEqualsWhole) {
  Bench bench(folder(), in_float32(4), *device);
  const Matrix expected = golden.matrix("p200.logits"), other = golden.matrix("p37.logits");
  Sequence a = bench.sequence(golden.ids("p200.ids")), b = bench.sequence(golden.ids("p37.ids"));
  bench.run(PlanBuilder().add(a, 120).add(b, 36).plan());
  const Matrix logits = bench.run(PlanBuilder().add(b, 1).add(a, 79).plan());
  EXPECT_LE(largest_difference(logits.row(0), other.row(36)), 1e-3f);
  EXPECT_LE(largest_difference(logits.row(1), expected.row(198)), 1e-3f);
  const Matrix last = bench.run(PlanBuilder().add(a, 1).plan());
  EXPECT_LE(largest_difference(last.row(0), expected.row(199)), 1e-3f);
}

INSTANTIATE_TEST_SUITE_P(Families, CudaGolden, testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

TEST(CudaDevice, MemoryIsZeroedAndCopiesAreOrderedByEvents) {
  auto device = open_gpu();
  EXPECT_GT(device->free_bytes(), 0);
  auto load = std::move(device->make_stream()).value(), compute = std::move(device->make_stream()).value();
  constexpr std::size_t kBytes = 64 << 20;
  auto source = std::move(device->allocate_pinned(kBytes)).value();
  auto page = std::move(device->allocate(kBytes)).value();
  auto seen = std::move(device->allocate_pinned(kBytes)).value();
  std::memset(source->data(), 7, kBytes);
  ASSERT_TRUE(compute->copy(seen->data(), page->data(), kBytes).ok());
  ASSERT_TRUE(compute->synchronize().ok());
  EXPECT_EQ(static_cast<unsigned char*>(seen->data())[kBytes - 1], 0);

  device::LayerReady gates(1);
  ASSERT_TRUE(load->copy(page->data(), source->data(), kBytes).ok());
  std::shared_ptr<device::Event> event = std::move(device->make_event()).value();
  ASSERT_TRUE(load->record(*event).ok());
  gates.mark(0, event);
  ASSERT_TRUE(gates.wait(0, *compute).ok());
  ASSERT_TRUE(compute->copy(seen->data(), page->data(), kBytes).ok());
  ASSERT_TRUE(compute->synchronize().ok());
  EXPECT_EQ(std::memcmp(seen->data(), source->data(), kBytes), 0);
}

TEST(CudaDevice, TooMuchMemoryIsRefusedWithBothNumbersAndTheDeviceLives) {
  auto device = open_gpu();
  const Status status = device->allocate(static_cast<std::size_t>(device->total_bytes()) + 1).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("bytes are free"), std::string::npos) << status.message();
  EXPECT_TRUE(device->allocate(1024).ok());
}

TEST(CudaDevice, AnIndexThatIsNotHereIsUnavailable) {
  open_gpu();
  EXPECT_EQ(device::open_device(device::DeviceKind::kCuda, 64).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace levada::model
