// The tiny checkpoints on a GPU, in float32 and bfloat16, and the CUDA device itself. Fails where there is no GPU.
#include "device/layer_ready.h"
#include "model/fp8_checkpoint_test.h"
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

// The same prompt over a checkpoint's logits in float32 on the CPU, and as `options` say on the GPU.
double error_on_gpu(const std::filesystem::path& reference, const std::filesystem::path& path, ModelOptions options,
                    const std::string& backend) {
  const auto logits = [](const std::filesystem::path& p, const ModelOptions& o, device::Device& device,
                         std::string* which) {
    Bench bench(p, o, device);
    *which = bench.model->backend();
    std::mt19937 bits(3);
    std::vector<core::Token> tokens(150);
    for (core::Token& token : tokens) token = static_cast<core::Token>(bits() % 384);
    Sequence sequence = bench.sequence(tokens);
    bench.run(PlanBuilder().add(sequence, 100).plan());
    std::vector<float> all = bench.run(PlanBuilder().add(sequence, 49).plan()).values;
    const Matrix last = bench.run(PlanBuilder().add(sequence, 1).plan());
    all.insert(all.end(), last.values.begin(), last.values.end());
    return all;
  };
  auto cpu = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  auto gpu = open_gpu();
  std::string which;
  const std::vector<float> wanted = logits(reference, in_float32(), *cpu, &which);
  const std::vector<float> got = logits(path, options, *gpu, &which);
  EXPECT_NE(which.find(backend), std::string::npos) << which;
  return relative_error(got, wanted);
}

ModelOptions in_bfloat16(const std::string& kv = "auto") {
  ModelOptions options;
  options.dtype = "bfloat16";
  options.kv_cache_dtype = kv;
  return options;
}

TEST(CudaFloat8, WeightsInBlocksGiveNearlyWhatTheirMeaningGives) {
  const Fp8Folder folder;
  const double as_stored = error_on_gpu(folder.plain(), folder.float8(), in_bfloat16(), "float8 weights");
  const double converted = error_on_gpu(folder.plain(), folder.plain(), in_bfloat16(), "decode graphs");
  EXPECT_LT(as_stored, 0.08) << "activations are float8, too; bfloat16 alone: " << converted;
  EXPECT_LT(converted, 0.03);
}

TEST(CudaFloat8, BlocksThatNoProductTakesAreConvertedAndTheLogitsStay) {
  const Fp8Folder cut(/*intermediate=*/200);
  EXPECT_LT(error_on_gpu(cut.plain(), cut.float8(), in_bfloat16(), "float8 weights"), 0.08) << "q, k, v, o are kept";
}

TEST(CudaFloat8, AKvCacheOfFloat8StaysNear) {
  const Fp8Folder folder;
  EXPECT_LT(error_on_gpu(folder.plain(), folder.plain(), in_bfloat16("fp8_e4m3"), "float8 KV cache"), 0.06);
  ModelOptions wide = in_float32();
  wide.kv_cache_dtype = "fp8_e4m3";
  EXPECT_LT(error_on_gpu(folder.plain(), folder.plain(), wide, "float8 KV cache"), 0.05);
}

// Keys and values of thousands: beyond 448, e4m3 has nothing.
TEST(CudaFloat8, ScalesOfTheCheckpointOrOfPagesKeepLargeKeysAndValues) {
  Fp8Folder folder;
  folder.enlarge_kv(1024);
  const auto error = [&](const std::string& kv, const std::string& backend, ModelOptions options) {
    options.kv_cache_dtype = kv;
    return error_on_gpu(folder.plain(), folder.plain(), options, backend);
  };
  for (const ModelOptions& options : {in_bfloat16(), in_float32()}) {
    EXPECT_GT(error("fp8_e4m3", "float8 KV cache without scales", options), 0.2) << options.dtype;
    EXPECT_LT(error("fp8_e4m3_page", "float8 KV cache with scales of each page", options), 0.06) << options.dtype;
  }
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    folder.add_plain(layer + "self_attn.k_scale", {}, {64});
    folder.add_plain(layer + "self_attn.v_scale", {}, {32});
  }
  folder.write_plain();
  for (const ModelOptions& options : {in_bfloat16(), in_float32()}) {
    EXPECT_LT(error("fp8_e4m3", "float8 KV cache with the checkpoint's scales", options), 0.06) << options.dtype;
  }
}

// The manifest's file of a folder; empty if it holds none.
std::filesystem::path only_file(const std::filesystem::path& folder) {
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) file = entry.path();
  return file;
}

TEST(CudaWarmup, TheSecondStartMeasuresNothingAndADamagedManifestIsReplaced) {
  const test::TemporaryFolder folder;
  auto device = open_gpu();
  ModelOptions options = in_bfloat16();
  options.warmup_folder = folder.path() / "made";
  const auto start = [&] { return load_model(vectors() / "tiny" / "qwen3", options, *device).ok(); };
  ASSERT_TRUE(start());
  const std::filesystem::path file = only_file(folder.path() / "made");
  ASSERT_FALSE(file.empty());
  const auto written = std::filesystem::last_write_time(file);
  const auto bytes = std::filesystem::file_size(file);
  EXPECT_GT(bytes, 1000u);
  ASSERT_TRUE(start());
  EXPECT_EQ(std::filesystem::last_write_time(file), written) << "nothing was measured, so nothing was written";
  std::filesystem::resize_file(file, bytes / 2);
  ASSERT_TRUE(start());
  EXPECT_NEAR(static_cast<double>(std::filesystem::file_size(file)), static_cast<double>(bytes), 0.2 * bytes);
  EXPECT_EQ(only_file(folder.path() / "made"), file) << "one file, no leftovers";
}

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

// The GPU, but for large memory, which lies where nothing is: kernels that touch it end in an error that the GPU keeps.
class FaultyDevice final : public device::Device {
 public:
  std::size_t faulty_from_bytes = SIZE_MAX;

  device::DeviceKind kind() const override { return gpu_->kind(); }
  int index() const override { return gpu_->index(); }
  std::string name() const override { return gpu_->name(); }
  std::int64_t total_bytes() const override { return gpu_->total_bytes(); }
  std::int64_t free_bytes() const override { return gpu_->free_bytes(); }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate(std::size_t bytes) override {
    if (bytes < faulty_from_bytes) return gpu_->allocate(bytes);
    return std::unique_ptr<device::DeviceBuffer>(std::make_unique<Nowhere>(bytes));
  }
  Result<std::unique_ptr<device::DeviceBuffer>> allocate_pinned(std::size_t bytes) override {
    return gpu_->allocate_pinned(bytes);
  }
  Result<std::unique_ptr<device::Stream>> make_stream() override { return gpu_->make_stream(); }
  Result<std::unique_ptr<device::Event>> make_event() override { return gpu_->make_event(); }
  Status health() const override { return gpu_->health(); }

 private:
  struct Nowhere final : device::DeviceBuffer {
    explicit Nowhere(std::size_t bytes) : bytes(bytes) {}
    void* data() const override { return reinterpret_cast<void*>(0x1000); }
    std::size_t size_bytes() const override { return bytes; }
    const std::size_t bytes;
  };
  std::unique_ptr<device::Device> gpu_ = open_gpu();
};

// Runs a step over KV memory that isn't there; 0 if everything that follows fails as it should.
int outlive_a_kept_error() {
  FaultyDevice device;
  auto model = std::move(load_model(vectors() / "tiny" / "llama", in_float32(), device)).value();
  auto first = std::move(model->make_kv_pool(16)).value();  // the decode graphs are recorded over this one
  device.faulty_from_bytes = 1;
  auto pool = std::move(model->make_kv_pool(16)).value();
  device.faulty_from_bytes = SIZE_MAX;
  if (!model->health().ok()) return 1;
  for (int step = 0; step < 2; ++step) {
    Sequence sequence{{1, 2, 3}, {0}, 0};
    PlanBuilder builder;
    builder.add(sequence, 3);
    auto forward = model->begin(builder.plan(), *pool);
    if (!forward.ok()) continue;
    if (!forward.value()->all_layers().ok()) continue;
    auto tokens = forward.value()->sample();
    if (tokens.ok() && tokens.value()->wait().ok()) return 2;
  }
  return model->health().message().find("illegal memory access") == std::string::npos ? 3 : 0;
}

TEST(CudaDevice, AnErrorThatTheGpuKeepsFailsEveryStepAndIsToldAndTheProcessEndsCleanly) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(outlive_a_kept_error()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace levada::model
