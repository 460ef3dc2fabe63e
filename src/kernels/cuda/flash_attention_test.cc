// FlashInfer's paged attention against its plain twin, and a recorded launch with other lengths. Needs a GPU.
#include "kernels/cuda/flash_attention.h"

#include <algorithm>

#include "kernels/cuda/gpu_tensors.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/ref/ref_ops.h"

namespace levada::kernels::cuda {
namespace {

constexpr std::int32_t kPageSize = 16, kPages = 200;

// Requests with `rows` new tokens after `context` others, pages in a shuffled order.
struct Batch {
  std::vector<std::int32_t> first_row, rows, context, table_first, tables;
  std::int32_t total = 0;
  Batch(std::vector<std::pair<int, int>> context_and_rows, unsigned seed) {
    std::vector<std::int32_t> free(kPages);
    for (std::int32_t i = 0; i < kPages; ++i) free[static_cast<std::size_t>(i)] = i;
    std::shuffle(free.begin(), free.end(), std::mt19937(seed));
    for (const auto& [before, count] : context_and_rows) {
      first_row.push_back(total);
      rows.push_back(count);
      context.push_back(before);
      table_first.push_back(static_cast<std::int32_t>(tables.size()));
      for (int p = 0; p * kPageSize < before + count; ++p) {
        tables.push_back(free.back());
        free.pop_back();
      }
      tables.push_back(-1);  // tables needn't be packed
      total += count;
    }
  }
  PagedBatch view() const { return {first_row, rows, context, table_first, tables, kPageSize}; }
};

struct FlashTest : ::testing::Test {
  void prepare(DType dtype, int heads, int kv_heads, int head_dim, bool f8_kv = false) {
    shape = {heads, kv_heads, head_dim, kPageSize, dtype, 2048, 64, 1024, f8_kv};
    const DType kv_type = f8_kv ? DType::kF8E4M3 : dtype;
    auto made = FlashAttention::create(device, shape);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    flash = std::move(made).value();
    k.reset(new GpuTensor(GpuTensor::random(1, kv_type, {kPages, kPageSize, kv_heads, head_dim})));
    v.reset(new GpuTensor(GpuTensor::random(2, kv_type, {kPages, kPageSize, kv_heads, head_dim})));
  }
  std::vector<float> want(GpuTensor& q, const Batch& batch) {
    std::vector<float> from = q.floats(), keys = k->floats(), values = v->floats(), out(from.size());
    for (float& x : keys) x *= scales.k;
    for (float& x : values) x *= scales.v;
    const std::int64_t rows = q.view().shape[0], h = shape.heads, d = shape.head_dim;
    ref.paged_attention(host_view(from, {rows, h, d}), batch.view(),
                        host_view(keys, {kPages, kPageSize, shape.kv_heads, d}),
                        host_view(values, {kPages, kPageSize, shape.kv_heads, d}), 0.11f, host_view(out, {rows, h, d}));
    return out;
  }
  GpuTensor query(std::int64_t rows) {
    return GpuTensor::random(3, shape.dtype, {rows, shape.heads, shape.head_dim}, 64);
  }
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream->native_handle()); }
  GpuTestDevice device;
  std::unique_ptr<device::Stream> stream = std::move(device.make_stream()).value();
  ThreadPool pool{1};
  RefOps ref{pool};
  FlashShape shape;
  KvScales scales;
  std::unique_ptr<FlashAttention> flash;
  std::unique_ptr<GpuTensor> k, v;
};

TEST_F(FlashTest, EqualsItsTwinForEveryShape) {
  for (const auto& [dtype, f8_kv] : {std::pair{DType::kBF16, false}, {DType::kF16, false}, {DType::kBF16, true}}) {
    for (const auto& [heads, kv_heads, head_dim] : {std::tuple{9, 3, 64}, {8, 2, 128}, {8, 1, 128}, {2, 2, 64}}) {
      prepare(dtype, heads, kv_heads, head_dim, f8_kv);
      scales = f8_kv ? KvScales{0.25f, 3.0f, {}} : KvScales{};
      for (const auto& batch : {Batch({{0, 1}}, 1), Batch({{700, 1}, {0, 1}, {15, 1}}, 2), Batch({{0, 33}, {20, 7}}, 3),
                                Batch({{0, 300}, {512, 100}, {99, 1}}, 4)}) {
        GpuTensor q = query(batch.total);
        GpuTensor out = GpuTensor::unwritten(dtype, {batch.total, std::int64_t{heads} * head_dim});
        expect_ok(flash->plan(batch.view(), 0, *stream));
        expect_ok(flash->run(q, *k, *v, 0.11f, out, native(), scales));
        expect_ok(stream->synchronize());
        expect_close(out.floats(), want(q, batch), 2 * rounding(dtype), 0.5, "flash attention");
        EXPECT_TRUE(out.guards_hold());
      }
    }
  }
}

TEST_F(FlashTest, ARecordedLaunchServesOtherLengths) {
  prepare(DType::kBF16, 8, 2, 128);
  const std::int32_t padded = 8;
  GpuTensor q = query(padded);
  GpuTensor out = GpuTensor::unwritten(DType::kBF16, {padded, 8 * 128});
  expect_ok(flash->plan(Batch({{3, 1}}, 1).view(), padded, *stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  LEVADA_CUDA_OK(cudaStreamBeginCapture(native(), cudaStreamCaptureModeGlobal));
  expect_ok(flash->run(q, *k, *v, 0.11f, out, native()));
  LEVADA_CUDA_OK(cudaStreamEndCapture(native(), &graph));
  LEVADA_CUDA_OK(cudaGraphInstantiate(&ready, graph, 0));
  for (const auto& batch : {Batch({{900, 1}, {0, 1}, {17, 1}}, 2),
                            Batch({{1, 1}, {31, 1}, {32, 1}, {5, 1}, {64, 1}, {9, 1}}, 3), Batch({{1500, 1}}, 4)}) {
    expect_ok(flash->plan(batch.view(), padded, *stream));
    LEVADA_CUDA_OK(cudaGraphLaunch(ready, native()));
    expect_ok(stream->synchronize());
    std::vector<float> got = out.floats();
    GpuTensor own = query(batch.total);
    got.resize(static_cast<std::size_t>(batch.total) * 8 * 128);
    expect_close(got, want(own, batch), 2 * rounding(DType::kBF16), 0.5, "replayed flash attention");
    EXPECT_TRUE(out.guards_hold());
  }
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
}

TEST_F(FlashTest, ARecordedLaunchOfSeveralRowsEachServesOtherLengths) {
  for (const auto& [each, f8_kv] : {std::pair{2, false}, {5, false}, {8, true}}) {
    prepare(DType::kBF16, 8, 2, 128, f8_kv);
    const std::int32_t padded = 6 * each;
    GpuTensor q = query(padded);
    GpuTensor out = GpuTensor::unwritten(DType::kBF16, {padded, 8 * 128});
    expect_ok(flash->plan(Batch({{3, each}}, 1).view(), padded, *stream, each));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    LEVADA_CUDA_OK(cudaStreamBeginCapture(native(), cudaStreamCaptureModeGlobal));
    expect_ok(flash->run(q, *k, *v, 0.11f, out, native()));
    LEVADA_CUDA_OK(cudaStreamEndCapture(native(), &graph));
    LEVADA_CUDA_OK(cudaGraphInstantiate(&ready, graph, 0));
    for (const auto& batch : {Batch({{900, each}, {0, each}, {17, each}}, 2), Batch({{1500, each}}, 4),
                              Batch({{1, each}, {31, each}, {30, each}, {5, each}, {64, each}, {9, each}}, 3)}) {
      expect_ok(flash->plan(batch.view(), padded, *stream, each));
      LEVADA_CUDA_OK(cudaGraphLaunch(ready, native()));
      expect_ok(stream->synchronize());
      std::vector<float> got = out.floats();
      GpuTensor own = query(batch.total);
      got.resize(static_cast<std::size_t>(batch.total) * 8 * 128);
      expect_close(got, want(own, batch), 2 * rounding(DType::kBF16), 0.5,
                   "replayed, rows each " + std::to_string(each));
      EXPECT_TRUE(out.guards_hold());
    }
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
  }
}

TEST_F(FlashTest, WhatDoesNotFitIsRefused) {
  prepare(DType::kBF16, 8, 2, 128);
  EXPECT_FALSE(flash->plan(Batch({{0, 3}, {0, 2}}, 1).view(), 6, *stream, 3).ok()) << "a slice of two rows among three";
  EXPECT_FALSE(flash->plan(Batch({{0, 3}}, 1).view(), 4, *stream, 3).ok()) << "padded rows of no whole request";
  EXPECT_FALSE(flash->plan(Batch({{0, 3}}, 1).view(), 4, *stream).ok()) << "a slice of three rows in a padded plan";
  EXPECT_FALSE(flash->plan(Batch({{0, 1}}, 1).view(), 65, *stream).ok()) << "more padded rows than promised";
  Batch swapped({{0, 1}, {0, 2}}, 1);
  std::swap(swapped.first_row[0], swapped.first_row[1]);
  EXPECT_FALSE(flash->plan(swapped.view(), 0, *stream).ok());
  GpuTensor q = query(1), out = GpuTensor::unwritten(DType::kBF16, {1, 8 * 128}),
            by_page = GpuTensor::random(4, DType::kF32, {kPages, kPageScales});
  expect_ok(flash->plan(Batch({{0, 1}}, 1).view(), 0, *stream));
  EXPECT_FALSE(flash->run(q, *k, *v, 1, out, native(), {2, 1, {}}).ok()) << "a scale of bfloat16 planes";
  prepare(DType::kBF16, 8, 2, 128, true);
  expect_ok(flash->plan(Batch({{0, 1}}, 1).view(), 0, *stream));
  EXPECT_FALSE(flash->run(q, *k, *v, 1, out, native(), {1, 1, by_page}).ok()) << "scales by page";
  EXPECT_FALSE(FlashAttention::supports({8, 2, 32, 16, DType::kBF16, 1, 1, 1}));
  EXPECT_FALSE(FlashAttention::supports({8, 2, 64, 16, DType::kF32, 1, 1, 1}));
  EXPECT_FALSE(FlashAttention::supports({8, 2, 64, 16, DType::kF16, 1, 1, 1, true}));
}

}  // namespace
}  // namespace levada::kernels::cuda
