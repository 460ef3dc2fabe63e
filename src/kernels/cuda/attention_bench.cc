// Times of paged attention, sampling and copies of whole pages, as JSON lines. Needs a GPU.
//   kernels_cuda_attention_bench
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/expand.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/gpu_test_device.h"
#include "kernels/cuda/pages.h"
#include "kernels/cuda/sampling.h"
#include "kernels/page_scales.h"

namespace levada::kernels::cuda {
namespace {

constexpr int kCalls = 20;
constexpr std::int32_t kPageSize = 16;

void must(const Status& status) { LEVADA_CHECK(status.ok(), status.to_string().c_str()); }
void must(cudaError_t error) { LEVADA_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

// Median microseconds of one of kCalls calls in a graph.
double call_us(const std::function<Status()>& call, cudaStream_t stream) {
  must(call());
  must(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kCalls; ++i) must(call());
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&ready, graph, 0));
  cudaEvent_t start = nullptr, stop = nullptr;
  must(cudaEventCreate(&start));
  must(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 8; ++i) {
    must(cudaEventRecord(start, stream));
    must(cudaGraphLaunch(ready, stream));
    must(cudaEventRecord(stop, stream));
    must(cudaEventSynchronize(stop));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, start, stop));
    times.push_back(ms * 1000 / kCalls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class Bench {
 public:
  void attention(const char* name, int heads, int kv_heads, int d, int requests, int context, int rows, bool padded,
                 bool f8_kv = false) {
    const std::int32_t pages_each = (context + rows + kPageSize - 1) / kPageSize, pages = pages_each * requests;
    const std::int64_t total = std::int64_t{requests} * rows, width = std::int64_t{heads} * d;
    auto flash = FlashAttention::create(
        device_, {heads, kv_heads, d, kPageSize, DType::kBF16, total, padded ? total : 0, pages, f8_kv});
    must(flash.status());
    TensorView k = take({pages, kPageSize, kv_heads, d}), v = take({pages, kPageSize, kv_heads, d});
    const TensorView q = take({total, heads, d}), out = take({total, width});
    if (f8_kv) k.dtype = v.dtype = DType::kF8E4M3;
    std::vector<std::int32_t> first_row, count, before, table_first, tables;
    for (int r = 0; r < requests; ++r) {
      first_row.push_back(r * rows);
      count.push_back(rows);
      before.push_back(context);
      table_first.push_back(r * pages_each);
    }
    for (std::int32_t p = 0; p < pages; ++p) tables.push_back(p);
    const PagedBatch batch{first_row, count, before, table_first, tables, kPageSize};
    must((*flash)->plan(batch, padded ? requests : 0, *stream_));
    const double us = call_us([&] { return (*flash)->run(q, k, v, 0.1f, out, native()); }, native());
    const double kv_bytes = 2.0 * static_cast<double>(bytes_of(k.dtype)) * pages * kPageSize * kv_heads * d;
    const double flops = 4.0 * static_cast<double>(width) * requests * rows * (context + rows / 2.0);
    std::printf("{\"bench\": \"attention\", \"name\": \"%s\", \"us\": %.2f, \"kv_gb_s\": %.0f, \"tflop_s\": %.1f}\n",
                name, us, kv_bytes / us / 1e3, flops / us / 1e6);
    std::fflush(stdout);
    memory_.clear();
  }

  void sampling(const char* name, int rows, std::int64_t vocabulary, float spread, const SampleParams& params) {
    auto sampler = Sampler::create(device_, rows, vocabulary, 1 << 20);
    must(sampler.status());
    std::vector<float> values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocabulary));
    std::mt19937 bits(3);
    std::normal_distribution<float> normal(0, spread);
    for (float& x : values) x = normal(bits);
    auto memory = std::move(device_.allocate(values.size() * 4 + static_cast<std::size_t>(rows) * 4)).value();
    must(cudaMemcpy(memory->data(), values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    const TensorView logits =
        TensorView::of(memory->data(), DType::kF32, {rows, vocabulary}, device::DeviceKind::kCuda);
    const TensorView tokens =
        TensorView::of(logits.as<float>() + values.size(), DType::kI32, {rows}, device::DeviceKind::kCuda);
    SamplerRow row;
    row.params = params;
    must((*sampler)->upload(std::vector<SamplerRow>(static_cast<std::size_t>(rows), row), rows, *stream_));
    const double us = call_us([&] { return (*sampler)->run(logits, nullptr, tokens, native()); }, native());
    std::printf("{\"bench\": \"sampling\", \"name\": \"%s\", \"us\": %.2f}\n", name, us);
    std::fflush(stdout);
  }

  // So many tokens' pages with scales of their own, as bfloat16.
  void expand(const char* name, int kv_heads, int d, std::int32_t tokens) {
    const std::int32_t pages = tokens / kPageSize;
    const std::int64_t numbers = std::int64_t{tokens} * kv_heads * d;
    TensorView k = take({pages, kPageSize, kv_heads, d}), v = take({pages, kPageSize, kv_heads, d});
    const TensorView k_out = take({pages, kPageSize, kv_heads, d}), v_out = take({pages, kPageSize, kv_heads, d}),
                     scales = take({pages, 2 * kPageScales}), ids = take({2 * std::int64_t{pages}});
    k.dtype = v.dtype = DType::kF8E4M3;
    std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    must(cudaMemcpy(ids.data, order.data(), order.size() * 4, cudaMemcpyHostToDevice));
    const auto on_gpu = [](void* data, DType dtype, std::initializer_list<std::int64_t> shape) {
      return TensorView::of(data, dtype, shape, device::DeviceKind::kCuda);
    };
    const ExpandPages call{
        k,     v,    on_gpu(scales.data, DType::kF32, {pages, kPageScales}), on_gpu(ids.data, DType::kI32, {pages}),
        k_out, v_out};
    const double us = call_us([&] { return expand_pages(call, native()); }, native());
    std::printf("{\"bench\": \"expand\", \"name\": \"%s\", \"us\": %.2f, \"gb_s\": %.0f}\n", name, us,
                2.0 * 3 * static_cast<double>(numbers) / us / 1e3);
    std::fflush(stdout);
    memory_.clear();
  }

  // A quarter of a pool's pages, in random order, to one buffer and back; rates are of bytes read and written, the limit
  // is a device copy of that buffer.
  void pages(const char* name, std::int64_t layers, std::int64_t plane_bytes, bool page_scales) {
    constexpr std::int32_t kPool = 1024, kCopied = kPool / 4;
    std::vector<PagePlane> planes;
    const auto add = [&](std::int64_t bytes) {
      const TensorView memory = take({layers, kPool, bytes / 2});
      planes.push_back({memory.data, layers, kPool, bytes, kPool * bytes});
    };
    add(plane_bytes), add(plane_bytes);
    if (page_scales) add(kPageScales * 4);
    const std::int64_t bytes = packed_page_bytes(planes) * kCopied;
    const TensorView packed = take({bytes / 2}), copy = take({bytes / 2}), ids = take({kCopied * 2});
    std::vector<std::int32_t> order(kPool);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    must(cudaMemcpy(ids.data, order.data(), kCopied * 4, cudaMemcpyHostToDevice));
    const auto* const pages = static_cast<const std::int32_t*>(ids.data);
    const auto rate = [&](const std::function<Status()>& call) {
      return 2.0 * static_cast<double>(bytes) / call_us(call, native()) / 1e3;
    };
    const double copied = rate([&] {
      return check_cuda(
          cudaMemcpyAsync(copy.data, packed.data, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, native()),
          "copy");
    });
    const double gathered = rate([&] { return gather_pages(planes, pages, kCopied, packed.data, native()); });
    const double scattered = rate([&] { return scatter_pages(planes, pages, kCopied, packed.data, native()); });
    std::printf(
        "{\"bench\": \"pages\", \"name\": \"%s\", \"mib\": %.0f, \"copy_gb_s\": %.0f, \"gather_gb_s\": %.0f, "
        "\"scatter_gb_s\": %.0f}\n",
        name, static_cast<double>(bytes) / (1 << 20), copied, gathered, scattered);
    std::fflush(stdout);
    memory_.clear();
  }

  // Decode rows over a float8 cache, by our kernel: with a pair of scales for all pages, and with one for each.
  void rows(const char* name, int heads, int kv_heads, int d, int requests, int context) {
    const std::int32_t pages_each = context / kPageSize, pages = pages_each * requests;
    auto attention = std::move(PagedAttention::create(device_, heads, kv_heads, d, requests)).value();
    TensorView k = take({pages, kPageSize, kv_heads, d}), v = take({pages, kPageSize, kv_heads, d});
    const TensorView q = take({requests, heads, d}), out = take({requests, std::int64_t{heads} * d}),
                     halves = take({pages, 2 * kPageScales}), ints = take({2 * (2 * requests + pages)});
    k.dtype = v.dtype = DType::kF8E4M3;
    std::vector<std::int32_t> values(static_cast<std::size_t>(requests), context);
    for (int r = 0; r < requests; ++r) values.push_back(r * pages_each);
    for (std::int32_t p = 0; p < pages; ++p) values.push_back(p);
    must(cudaMemcpy(ints.data, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    const auto* const at = static_cast<const std::int32_t*>(ints.data);
    const AttentionRows where{at, at + requests, at + 2 * requests};
    const KvScales by_page{1, 1,
                           TensorView::of(halves.data, DType::kF32, {pages, kPageScales}, device::DeviceKind::kCuda)};
    const auto us = [&](const KvScales& scales) {
      return call_us([&] { return attention->run(q, where, k, v, 0.1f, out, native(), scales); }, native());
    };
    const double bytes = 2.0 * pages * kPageSize * kv_heads * d, all = us({2, 2, {}}), paged = us(by_page);
    std::printf(
        "{\"bench\": \"float8_rows\", \"name\": \"%s\", \"us\": %.2f, \"kv_gb_s\": %.0f, \"by_page_us\": %.2f, "
        "\"by_page_kv_gb_s\": %.0f}\n",
        name, all, bytes / all / 1e3, paged, bytes / paged / 1e3);
    std::fflush(stdout);
    memory_.clear();
  }

 private:
  TensorView take(std::initializer_list<std::int64_t> shape) {
    TensorView view = TensorView::of(nullptr, DType::kBF16, shape, device::DeviceKind::kCuda);
    memory_.push_back(std::move(device_.allocate(static_cast<std::size_t>(view.elements()) * 2)).value());
    view.data = memory_.back()->data();
    return view;
  }
  cudaStream_t native() const { return static_cast<cudaStream_t>(stream_->native_handle()); }
  GpuTestDevice device_;
  std::unique_ptr<device::Stream> stream_ = std::move(device_.make_stream()).value();
  std::vector<std::unique_ptr<device::DeviceBuffer>> memory_;
};

void run() {
  Bench bench;
  bench.pages("qwen3_8b.bf16", 36, kPageSize * 8 * 128 * 2, false);
  bench.pages("qwen3_8b.f8_page", 36, kPageSize * 8 * 128, true);
  bench.pages("smollm2.bf16", 30, kPageSize * 3 * 64 * 2, false);
  bench.rows("qwen3_8b.decode.b32.ctx8192", 32, 8, 128, 32, 8192);
  bench.rows("qwen3_8b.decode.b1.ctx2048", 32, 8, 128, 1, 2048);
  bench.expand("qwen3_8b.ctx8192", 8, 128, 8192);
  bench.attention("qwen3_8b.decode.f8.b32.ctx8192", 32, 8, 128, 32, 8191, 1, true, true);
  bench.attention("qwen3_8b.prefill.f8.1x8192", 32, 8, 128, 1, 0, 8192, false, true);
  bench.attention("qwen3_8b.decode.b32.ctx8192", 32, 8, 128, 32, 8191, 1, true);
  bench.attention("qwen3_8b.decode.b64.ctx2048", 32, 8, 128, 64, 2047, 1, true);
  bench.attention("qwen3_8b.decode.b1.ctx512", 32, 8, 128, 1, 511, 1, true);
  bench.attention("smollm2.decode.b1.ctx512", 9, 3, 64, 1, 511, 1, true);
  bench.attention("smollm2.decode.b512.ctx256", 9, 3, 64, 512, 255, 1, true);
  bench.attention("qwen3_8b.prefill.1x8192", 32, 8, 128, 1, 0, 8192, false);
  bench.attention("smollm2.prefill.32x512", 9, 3, 64, 32, 0, 512, false);
  SampleParams greedy, plain, nucleus, all;
  greedy.temperature = 0;
  nucleus.top_p = 0.9f;
  all.temperature = 0.8f;
  all.top_k = 50;
  all.top_p = 0.95f;
  all.min_p = 0.05f;
  for (const int rows : {1, 512}) {
    const std::string at = ".b" + std::to_string(rows) + ".v49152";
    bench.sampling(("greedy" + at).c_str(), rows, 49152, 3, greedy);
    bench.sampling(("temperature" + at).c_str(), rows, 49152, 3, plain);
    bench.sampling(("top_p" + at).c_str(), rows, 49152, 3, nucleus);
    bench.sampling(("top_k_top_p_min_p" + at).c_str(), rows, 49152, 3, all);
  }
  bench.sampling("greedy.b1.v151936", 1, 151936, 3, greedy);
  bench.sampling("top_k_top_p_min_p.b64.v151936", 64, 151936, 3, all);
}

}  // namespace
}  // namespace levada::kernels::cuda

int main() { levada::kernels::cuda::run(); }
