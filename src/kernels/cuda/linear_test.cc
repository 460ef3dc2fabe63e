// Linears against its plain twin: both paths (own kernel, cuBLASLt), every end, strided rows. Needs a GPU.
#include "kernels/cuda/linear.h"

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/cuda/stream_read.h"
#include "kernels/ref/ref_rows.h"

namespace levada::kernels::cuda {
namespace {

struct LinearCase {
  std::int64_t rows, n, k;
  bool normed = false;
  LinearEnd end = LinearEnd::kStore;
  bool wide_out = false;
};

std::unique_ptr<Linears> make(DType dtype) {
  auto linears = Linears::create({160, 4096, 8192, 0, dtype});
  EXPECT_TRUE(linears.ok()) << linears.status().to_string();
  return std::move(linears).value();
}

struct CudaLinearTest : ::testing::TestWithParam<DType> {
  ThreadPool pool{1};
  RefOps ref{pool};
  std::unique_ptr<Linears> linears = make(GetParam());
  DType type() const { return GetParam(); }

  void equals_its_twin(const LinearCase& c, std::uint64_t seed) {
    const std::int64_t columns = c.end == LinearEnd::kSiluMul ? c.n / 2 : c.n;
    const float spread = 1 / std::sqrt(static_cast<float>(c.k));
    auto x = GpuTensor::random(seed, type(), {c.rows, c.k}, 8),
         w = GpuTensor::random(seed + 1, type(), {c.n, c.k}, 0, spread),
         norm = GpuTensor::random(seed + 2, DType::kF32, {c.k}, 0, 0.2f, 1);
    const DType out_type = c.wide_out ? DType::kF32 : type();
    auto out = c.end == LinearEnd::kAdd ? GpuTensor::random(seed + 3, out_type, {c.rows, columns}, 8)
                                        : GpuTensor::unwritten(out_type, {c.rows, columns}, 8);
    std::vector<float> xs = x.floats(), ws = w.floats(), norms = norm.floats(), want = out.floats();
    const TensorView none{};
    ref_linear(ref, host_view(xs, {c.rows, c.k}), host_view(ws, {c.n, c.k}), c.normed ? host_view(norms, {c.k}) : none,
               1e-5f, static_cast<RefLinearEnd>(c.end), host_view(want, {c.rows, columns}));
    expect_ok(linears->run({x, w, {}, c.normed ? norm.view() : none, 1e-5f, c.end, out}, nullptr));
    // x normed and the pairs before SiLU are rounded to T on the way.
    const double tolerance = (c.normed || c.end == LinearEnd::kSiluMul ? 3 : 1) * rounding(type());
    // A library may round the product before it adds it: as large as the product is then.
    expect_close(out.floats(), want, tolerance, c.end == LinearEnd::kAdd ? 2 : 0.6,
                 "rows " + std::to_string(c.rows) + " n " + std::to_string(c.n) + " k " + std::to_string(c.k) +
                     " end " + std::to_string(static_cast<int>(c.end)));
    EXPECT_TRUE(out.guards_hold());
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaLinearTest, ::testing::Values(DType::kBF16, DType::kF16, DType::kF32),
                         [](const auto& i) { return std::string(to_string(i.param)); });

TEST_P(CudaLinearTest, EqualsItsTwinForFewRows) {
  std::uint64_t seed = 1;
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 9, 16}) {
    for (const bool normed : {false, true}) {
      for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
        equals_its_twin({rows, 48, 32, normed, end}, seed += 10);
        equals_its_twin({rows, 192, 576, normed, end}, seed += 10);
        equals_its_twin({rows, 1200, 1536, normed, end}, seed += 10);
      }
    }
  }
}

TEST_P(CudaLinearTest, EqualsItsTwinForManyRows) {
  std::uint64_t seed = 1000;
  for (const std::int64_t rows : {17, 24, 33, 48, 63, 64, 65, 129}) {
    for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
      equals_its_twin({rows, 192, 576, true, end}, seed += 10);
      equals_its_twin({rows, 400, 1536, false, end}, seed += 10);
    }
  }
}

TEST_P(CudaLinearTest, EqualsItsTwinOnColumnsThatFitNoTile) {
  for (const std::int64_t rows : {1, 7, 16, 40}) {
    equals_its_twin({rows, 1001, 64, true}, 5);                             // rows of w past the last tile
    equals_its_twin({rows, 24, 40, false}, 6);                              // K that no chunk divides
    equals_its_twin({rows, 17003, 96, true, LinearEnd::kStore, true}, 9);   // a small model's vocabulary
    equals_its_twin({rows, 16, 12288, false}, 7);                           // long sums
    equals_its_twin({rows, 2200, 4096, true, LinearEnd::kStore, true}, 8);  // float32 logits, several tiles a block
  }
}

TEST_P(CudaLinearTest, GivesTheSameInAGraphAndTwice) {
  auto x = GpuTensor::random(1, type(), {2, 576}), w = GpuTensor::random(2, type(), {960, 576}),
       norm = GpuTensor::random(3, DType::kF32, {576}), first = GpuTensor::unwritten(type(), {2, 960}),
       again = GpuTensor::unwritten(type(), {2, 960});
  LinearCall call{x, w, {}, norm, 1e-5f, LinearEnd::kStore, first};
  expect_ok(linears->run(call, nullptr));
  call.out = again;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  LEVADA_CUDA_OK(cudaStreamCreate(&stream));
  LEVADA_CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  expect_ok(linears->run(call, stream));
  LEVADA_CUDA_OK(cudaStreamEndCapture(stream, &graph));
  LEVADA_CUDA_OK(cudaGraphInstantiate(&ready, graph, 0));
  for (int i = 0; i < 2; ++i) LEVADA_CUDA_OK(cudaGraphLaunch(ready, stream));
  EXPECT_EQ(again.floats(), first.floats());
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_P(CudaLinearTest, AChainReadsWhatItsPredecessorsWrote) {
  // A product starts before the one before it ends. What it reads must be that one's result all the same: the chain
  // gives bit for bit what it gives when each product is waited for.
  auto w = GpuTensor::random(2, type(), {576, 576}, 0, 0.04f);
  const auto chain = [&](bool waits) {
    auto a = GpuTensor::random(1, type(), {1, 576}), b = GpuTensor::unwritten(type(), {1, 576});
    for (int i = 0; i < 200; ++i) {
      expect_ok(linears->run(
          {i % 2 == 0 ? a.view() : b.view(), w, {}, {}, 0, LinearEnd::kStore, i % 2 == 0 ? b.view() : a.view()},
          nullptr));
      if (waits) {
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      }
    }
    return a.floats();
  };
  const std::vector<float> want = chain(true);
  for (int repeat = 0; repeat < 5; ++repeat) EXPECT_EQ(chain(false), want);
}

TEST_P(CudaLinearTest, TunedPlansTravelAsText) {
  auto x = GpuTensor::random(1, type(), {32, 2048}), w = GpuTensor::random(2, type(), {64, 2048}),
       out = GpuTensor::unwritten(type(), {32, 64}), again = GpuTensor::unwritten(type(), {32, 64});
  LinearCall call{x, w, {}, {}, 0, LinearEnd::kStore, out};
  const LinearCall calls[] = {call};
  const Result<bool> measured = linears->tune(calls, nullptr), twice = linears->tune(calls, nullptr);
  ASSERT_TRUE(measured.ok() && twice.ok()) << measured.status().to_string();
  EXPECT_TRUE(*measured && !*twice);
  expect_ok(linears->run(call, nullptr));
  auto other = make(type());
  expect_ok(other->load_plans(linears->save_plans()));
  EXPECT_EQ(other->save_plans(), linears->save_plans());
  EXPECT_FALSE(*other->tune(calls, nullptr));
  call.out = again;
  expect_ok(other->run(call, nullptr));
  EXPECT_EQ(again.floats(), out.floats());
}

TEST_P(CudaLinearTest, RefusesPlansOfOthersAndDamagedOnes) {
  EXPECT_EQ(linears->load_plans("nonsense").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(linears->load_plans(linears->save_plans() + "1 2 3\n").code(), StatusCode::kDataLoss);
}

TEST_P(CudaLinearTest, RefusesShapesThatDontFit) {
  auto x = GpuTensor::random(1, type(), {2, 64}), w = GpuTensor::random(2, type(), {16, 64}),
       out = GpuTensor::unwritten(type(), {2, 16}), norm = GpuTensor::random(3, DType::kF32, {32});
  const auto refused = [&](const LinearCall& call) {
    return linears->run(call, nullptr).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({x, x, {}, {}, 0, LinearEnd::kStore, out}));
  EXPECT_TRUE(refused({x, w, {}, norm, 0, LinearEnd::kStore, out}));
  EXPECT_TRUE(refused({x, w, {}, {}, 0, LinearEnd::kSiluMul, out}));
  EXPECT_TRUE(refused({x, w, {}, {}, 0, LinearEnd::kStore, x}));
  auto many = GpuTensor::random(1, type(), {161, 64}), many_out = GpuTensor::unwritten(type(), {161, 16});
  EXPECT_TRUE(refused({many, w, {}, {}, 0, LinearEnd::kStore, many_out}));
}

// Weights of f8 numbers with a scale for each 128 x 128 block, and what they stand for.
struct F8Weights {
  std::int64_t n, k, blocks = (k / 128 + 3) / 4 * 4;
  GpuTensor w = GpuTensor::random(50, DType::kF8E4M3, {n, k});
  GpuTensor scale{DType::kF32, {(n + 127) / 128, blocks}, 0, [](std::int64_t i) {
                    return 0.01f + 0.001f * static_cast<float>(i % 7);
                  }};

  std::vector<float> meant() {
    std::vector<float> numbers = w.floats(), scales = scale.floats();
    for (std::int64_t i = 0; i < n * k; ++i) {
      numbers[static_cast<std::size_t>(i)] *= scales[static_cast<std::size_t>(i / k / 128 * blocks + i % k / 128)];
    }
    return numbers;
  }
};

TEST(CudaF8LinearTest, BlockScaledWeightsEqualTheirTwin) {
  ThreadPool pool(1);
  RefOps ref(pool);
  auto linears = Linears::create({64, 1024, 1024, 1024, DType::kBF16});
  ASSERT_TRUE(linears.ok()) << linears.status().to_string();
  F8Weights weights{576, 640};
  std::vector<float> ws = weights.meant();
  auto norm = GpuTensor::random(51, DType::kF32, {640}, 0, 0.2f, 1);
  for (const std::int64_t rows : {1, 7, 8, 33, 64}) {
    for (const LinearEnd end : {LinearEnd::kStore, LinearEnd::kAdd, LinearEnd::kSiluMul}) {
      const std::int64_t columns = end == LinearEnd::kSiluMul ? 288 : 576;
      auto x = GpuTensor::random(52, DType::kBF16, {rows, 640}, 8),
           out = end == LinearEnd::kAdd ? GpuTensor::random(53, DType::kBF16, {rows, columns}, 8)
                                        : GpuTensor::unwritten(DType::kBF16, {rows, columns}, 8);
      std::vector<float> xs = x.floats(), norms = norm.floats(), want = out.floats(), normed(xs.size());
      ref.rms_norm(host_view(xs, {rows, 640}), host_view(norms, {640}), 1e-5f, host_view(normed, {rows, 640}));
      for (float& v : normed) v = __bfloat162float(__float2bfloat16(v));
      ref_quantize_rows(host_view(normed, {rows, 640}));
      ref_linear(ref, host_view(normed, {rows, 640}), host_view(ws, {576, 640}), {}, 0, static_cast<RefLinearEnd>(end),
                 host_view(want, {rows, columns}));
      expect_ok((*linears)->run({x, weights.w, weights.scale, norm, 1e-5f, end, out}, nullptr));
      expect_close(out.floats(), want, 2e-2, 0.6, "f8 rows " + std::to_string(rows));
      EXPECT_TRUE(out.guards_hold());
    }
  }
}

TEST(CudaF8LinearTest, RefusesScalesThatArentPadded) {
  auto linears = Linears::create({8, 1024, 1024, 1024, DType::kBF16});
  ASSERT_TRUE(linears.ok()) << linears.status().to_string();
  F8Weights weights{576, 640};
  auto x = GpuTensor::random(52, DType::kBF16, {8, 640}), out = GpuTensor::unwritten(DType::kBF16, {8, 576}),
       bare = GpuTensor::random(1, DType::kF32, {5, 5});
  EXPECT_EQ((*linears)->run({x, weights.w, bare, {}, 0, LinearEnd::kStore, out}, nullptr).code(),
            StatusCode::kInvalidArgument);
}

TEST(CudaReadTest, ReadsEveryByteOnce) {
  const std::int64_t words = 4 * 100003;
  std::vector<std::int32_t> values(static_cast<std::size_t>(words));
  std::int32_t want = 0;
  std::mt19937 bits(1);
  for (std::int32_t& v : values) want ^= v = static_cast<std::int32_t>(bits());
  void* data = nullptr;
  LEVADA_CUDA_OK(cudaMalloc(&data, static_cast<std::size_t>(words) * 4));
  LEVADA_CUDA_OK(cudaMemcpy(data, values.data(), static_cast<std::size_t>(words) * 4, cudaMemcpyHostToDevice));
  void* result = nullptr;
  LEVADA_CUDA_OK(cudaMalloc(&result, 4));
  LEVADA_CUDA_OK(cudaMemset(result, 0, 4));
  expect_ok(read_all(TensorView::of(data, DType::kU8, {words * 4}, device::DeviceKind::kCuda),
                     TensorView::of(result, DType::kI32, {1}, device::DeviceKind::kCuda), nullptr));
  std::int32_t got = 0;
  LEVADA_CUDA_OK(cudaMemcpy(&got, result, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, want);
  cudaFree(data);
  cudaFree(result);
}

}  // namespace
}  // namespace levada::kernels::cuda
