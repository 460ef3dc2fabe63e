// Times of the decoder's products and row kernels against the memory's read limit, as JSON lines. Needs a GPU.
//   kernels_cuda_bench
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/blas_plans.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/stream_read.h"

namespace levada::kernels::cuda {
namespace {

void must(const Status& status) { LEVADA_CHECK(status.ok(), status.to_string().c_str()); }
void must(cudaError_t error) { LEVADA_CHECK(error == cudaSuccess, cudaGetErrorString(error)); }

struct Model {
  const char* name;
  std::int64_t hidden, heads, kv_heads, head_dim, inter, layers, vocab;
  std::int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim; }
};
constexpr Model kModels[] = {{"smollm2", 576, 9, 3, 64, 1536, 30, 49152},
                             {"qwen3_8b", 4096, 32, 8, 128, 12288, 36, 151936}};

// Device memory handed out in pieces, filled with random bf16 numbers of about +-0.03.
class Pool {
 public:
  explicit Pool(std::size_t bytes) : bytes_(bytes) {
    void* data = nullptr;
    must(cudaMalloc(&data, bytes));
    data_ = static_cast<char*>(data);
    std::vector<std::uint16_t> block(std::size_t{16} << 20);
    std::mt19937 bits(1);
    for (std::uint16_t& x : block) x = static_cast<std::uint16_t>(0x3c00u | (bits() & 0x81ffu));
    const std::size_t step = block.size() * 2;
    for (std::size_t at = 0; at < bytes; at += step) {
      must(cudaMemcpy(data_ + at, at == 0 ? static_cast<void*>(block.data()) : static_cast<void*>(data_),
                      std::min(step, bytes - at), cudaMemcpyDefault));
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  ~Pool() { cudaFree(data_); }
  TensorView take(DType dtype, std::initializer_list<std::int64_t> shape) {
    const TensorView view = TensorView::of(data_ + used_, dtype, shape, device::DeviceKind::kCuda);
    used_ += (static_cast<std::size_t>(view.elements()) * bytes_of(dtype) + 255) / 256 * 256;
    LEVADA_CHECK(used_ <= bytes_, "the pool holds all tensors of a model");
    return view;
  }
  TensorView whole() const {
    return TensorView::of(data_, DType::kU8, {static_cast<std::int64_t>(bytes_)}, device::DeviceKind::kCuda);
  }

 private:
  char* data_ = nullptr;
  std::size_t bytes_, used_ = 0;
};

cudaStream_t g_stream = nullptr;

// Median microseconds of a graph of what `work` launches.
double graph_us(const std::function<void()>& work) {
  work();
  must(cudaStreamSynchronize(g_stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  must(cudaStreamBeginCapture(g_stream, cudaStreamCaptureModeGlobal));
  work();
  must(cudaStreamEndCapture(g_stream, &graph));
  must(cudaGraphInstantiate(&ready, graph, 0));
  cudaEvent_t start = nullptr, stop = nullptr;
  must(cudaEventCreate(&start));
  must(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    must(cudaEventRecord(start, g_stream));
    must(cudaGraphLaunch(ready, g_stream));
    must(cudaEventRecord(stop, g_stream));
    must(cudaEventSynchronize(stop));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 3) times.push_back(ms * 1000);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  cudaGraphExecDestroy(ready);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double g_limit_gb_s = 0;

void report(const std::string& name, double us, double bytes, int calls) {
  const double gb_s = bytes / us / 1e3;
  std::printf(
      "{\"bench\": \"kernels_cuda\", \"name\": \"%s\", \"us\": %.2f, \"us_per_call\": %.3f, \"gb_s\": %.0f, "
      "\"of_limit\": %.3f}\n",
      name.c_str(), us, us / calls, gb_s, g_limit_gb_s > 0 ? gb_s / g_limit_gb_s : 1.0);
  std::fflush(stdout);
}

struct Layer {
  TensorView qkv, o, gate_up, down;
};

class ModelBench {
 public:
  explicit ModelBench(const Model& m) : m_(m), pool_(pool_bytes(m)) {
    for (std::int64_t i = 0; i < m.layers; ++i) {
      layers_.push_back(
          {pool_.take(DType::kBF16, {m.qkv(), m.hidden}), pool_.take(DType::kBF16, {m.hidden, m.heads * m.head_dim}),
           pool_.take(DType::kBF16, {2 * m.inter, m.hidden}), pool_.take(DType::kBF16, {m.hidden, m.inter})});
    }
    head_ = pool_.take(DType::kBF16, {m.vocab, m.hidden});
    norm_ = pool_.take(DType::kF32, {m.hidden});
    auto linears = Linears::create({kMaxRows, m.hidden, 2 * m.inter, m.hidden, DType::kBF16});
    must(linears.status());
    linears_ = std::move(linears).value();
  }

  void run() {
    if (g_limit_gb_s == 0) measure_limit();
    for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128}) {
      take_rows(rows);
      const std::string at = "." + std::string(m_.name) + ".b" + std::to_string(rows);
      each_layer("qkv" + at, &Layer::qkv,
                 [&](const Layer& l) { return product(x_, l.qkv, true, LinearEnd::kStore, qkv_); });
      each_layer("o" + at, &Layer::o, [&](const Layer& l) { return product(attn_, l.o, false, LinearEnd::kAdd, x_); });
      each_layer("gate_up" + at, &Layer::gate_up,
                 [&](const Layer& l) { return product(x_, l.gate_up, true, LinearEnd::kSiluMul, act_); });
      each_layer("down" + at, &Layer::down,
                 [&](const Layer& l) { return product(act_, l.down, false, LinearEnd::kAdd, x_); });
      const LinearCall head = product(x_, head_, true, LinearEnd::kStore, logits_);
      must(linears_->tune({&head, 1}, g_stream).status());
      report("head" + at, graph_us([&] { must(linears_->run(head, g_stream)); }), bytes_of_view(head_), 1);
      if (rows == 1)
        report("rope" + at, graph_us([&] {
                 for (int i = 0; i < 30; ++i) rope();
               }),
               0, 30);
      token("token" + at);
      if (rows == 8 || rows == 16) compare_blas(at);
      if (m_.hidden % 128 == 0 && (rows == 1 || rows == 64)) f8_products(at);
    }
  }

 private:
  static constexpr std::int64_t kMaxRows = 128;

  static double bytes_of_view(const TensorView& v) { return static_cast<double>(v.elements()) * 2; }
  static std::size_t pool_bytes(const Model& m) {
    const std::int64_t layer = m.hidden * (m.qkv() + m.heads * m.head_dim + 3 * m.inter);
    const std::int64_t rows = kMaxRows * 2 * (4 * m.hidden + 2 * m.qkv() + 4 * m.inter + 2 * m.vocab) * 2;
    return static_cast<std::size_t>((m.layers * layer + m.vocab * m.hidden) * 2 + rows + (std::int64_t{64} << 20));
  }
  void take_rows(std::int64_t rows) {
    x_ = pool_.take(DType::kBF16, {rows, m_.hidden});
    qkv_ = pool_.take(DType::kBF16, {rows, m_.qkv()});
    attn_ = pool_.take(DType::kBF16, {rows, m_.heads * m_.head_dim});
    act_ = pool_.take(DType::kBF16, {rows, m_.inter});
    logits_ = pool_.take(DType::kF32, {rows, m_.vocab});
    cos_sin_ = pool_.take(DType::kF32, {64, m_.head_dim});
    positions_ = pool_.take(DType::kI32, {rows});
    plane_ = pool_.take(DType::kBF16, {16, 16, m_.kv_heads, m_.head_dim});
    must(cudaMemset(positions_.data, 0, static_cast<std::size_t>(rows) * 4));
  }
  LinearCall product(const TensorView& x, const TensorView& w, bool normed, LinearEnd end,
                     const TensorView& out) const {
    return {x, w, {}, normed ? norm_ : TensorView{}, 1e-5f, end, out};
  }
  void rope() {
    must(rope_append({qkv_,
                      static_cast<int>(m_.heads),
                      static_cast<int>(m_.kv_heads),
                      static_cast<int>(m_.head_dim),
                      {},
                      {},
                      1e-6f,
                      cos_sin_,
                      positions_,
                      positions_,
                      plane_,
                      plane_},
                     g_stream));
  }
  void measure_limit() {
    const TensorView result = pool_.take(DType::kI32, {1});
    TensorView data = pool_.whole();
    data.shape[0] = std::min<std::int64_t>(data.shape[0], std::int64_t{8} << 30) / 16 * 16;
    const double us = graph_us([&] { must(read_all(data, result, g_stream)); });
    g_limit_gb_s = static_cast<double>(data.shape[0]) / us / 1e3;
    report("read_limit", us, static_cast<double>(data.shape[0]), 1);
  }
  void each_layer(const std::string& name, TensorView Layer::*weight,
                  const std::function<LinearCall(const Layer&)>& call) {
    std::vector<LinearCall> calls;
    for (const Layer& layer : layers_) calls.push_back(call(layer));
    must(linears_->tune(calls, g_stream).status());
    const double us = graph_us([&] {
      for (const LinearCall& c : calls) must(linears_->run(c, g_stream));
    });
    report(name, us, bytes_of_view(layers_[0].*weight) * static_cast<double>(calls.size()),
           static_cast<int>(calls.size()));
  }
  // Every product and row kernel of one decode step, attention left out.
  void token(const std::string& name) {
    const auto work = [&] {
      for (const Layer& l : layers_) {
        must(linears_->run(product(x_, l.qkv, true, LinearEnd::kStore, qkv_), g_stream));
        rope();
        must(linears_->run(product(attn_, l.o, false, LinearEnd::kAdd, x_), g_stream));
        must(linears_->run(product(x_, l.gate_up, true, LinearEnd::kSiluMul, act_), g_stream));
        must(linears_->run(product(act_, l.down, false, LinearEnd::kAdd, x_), g_stream));
      }
      must(linears_->run(product(x_, head_, true, LinearEnd::kStore, logits_), g_stream));
    };
    const Layer& l = layers_[0];
    const double layer = bytes_of_view(l.qkv) + bytes_of_view(l.o) + bytes_of_view(l.gate_up) + bytes_of_view(l.down);
    report(name, graph_us(work), layer * static_cast<double>(m_.layers) + bytes_of_view(head_),
           static_cast<int>(5 * m_.layers + 1));
  }
  // What cuBLASLt needs for the bare products, where our own kernel is used now.
  void compare_blas(const std::string& at) {
    auto plans = BlasPlans::create();
    must(plans.status());
    const auto time = [&](const char* name, const TensorView& x, TensorView Layer::*w, const TensorView& out) {
      std::vector<Product> products;
      for (const Layer& l : layers_) products.push_back({x, l.*w, out});
      must((*plans)->tune(products, g_stream).status());
      const double us = graph_us([&] {
        for (const Product& p : products) must((*plans)->multiply(p, g_stream));
      });
      report(name + at, us, bytes_of_view(layers_[0].*w) * static_cast<double>(products.size()),
             static_cast<int>(products.size()));
    };
    time("blas_qkv", x_, &Layer::qkv, qkv_);
    time("blas_o", attn_, &Layer::o, x_);
    time("blas_gate_up", x_, &Layer::gate_up, pool_.take(DType::kBF16, {x_.shape[0], 2 * m_.inter}));
    time("blas_down", act_, &Layer::down, x_);
  }

  // Gate and up as f8 with block scales: half the bytes of the bf16 weights that lie there.
  void f8_products(const std::string& at) {
    const std::int64_t n = 2 * m_.inter, k = m_.hidden;
    const TensorView scales = pool_.take(DType::kF32, {(n + 127) / 128, (k / 128 + 3) / 4 * 4});
    std::vector<LinearCall> calls;
    for (const Layer& l : layers_) {
      const TensorView w = TensorView::of(l.gate_up.data, DType::kF8E4M3, {n, k}, device::DeviceKind::kCuda);
      calls.push_back({x_, w, scales, norm_, 1e-5f, LinearEnd::kSiluMul, act_});
    }
    must(linears_->tune(calls, g_stream).status());
    const double us = graph_us([&] {
      for (const LinearCall& c : calls) must(linears_->run(c, g_stream));
    });
    report("f8_gate_up" + at, us, static_cast<double>(n * k) * static_cast<double>(calls.size()),
           static_cast<int>(calls.size()));
  }

  const Model m_;
  Pool pool_;
  std::vector<Layer> layers_;
  TensorView head_, norm_, x_, qkv_, attn_, act_, logits_, cos_sin_, positions_, plane_;
  std::unique_ptr<Linears> linears_;
};

}  // namespace
}  // namespace levada::kernels::cuda

int main() {
  using namespace levada::kernels::cuda;
  must(cudaStreamCreate(&g_stream));
  for (const std::size_t model : {1, 0}) ModelBench(kModels[model]).run();
}
