// Speed of the kernels that decide decode and prefill, beside what the machine's memory gives in the same run.
// kernels_bench [--benchmark_filter=…]; sizes are SmolLM2-135M's, threads are all cores.
#include <benchmark/benchmark.h>
#include <emmintrin.h>

#include <array>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/ops.h"

namespace levada::kernels {
namespace {

constexpr std::int64_t kHidden = 576, kInner = 1536, kVocabulary = 49152, kLayers = 30;

ThreadPool& pool() {
  static ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
  return pool;
}

// On cache-line borders, as the allocators of tensors give them.
template <class T>
struct LineAllocator {
  using value_type = T;
  T* allocate(std::size_t count) { return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, std::size_t) { ::operator delete (p, std::align_val_t{64}); }
  bool operator==(const LineAllocator&) const { return true; }
};
template <class T>
using Buffer = std::vector<T, LineAllocator<T>>;

template <class T>
Buffer<T> filled(std::int64_t count) {
  Buffer<T> data(static_cast<std::size_t>(count));
  std::mt19937 bits(1);
  std::uniform_real_distribution<float> some(-1, 1);
  for (T& x : data) {
    if constexpr (sizeof(T) == 2) {
      x = to_bf16(some(bits));
    } else {
      x = some(bits);
    }
  }
  return data;
}

std::string table_name(const benchmark::State& state) {
  return std::array{"avx2", "avx512", "avx512_bf16"}[static_cast<std::size_t>(state.range(0))];
}

bool lacks(benchmark::State& state, const Ops* ops) {
  if (ops == nullptr) state.SkipWithError("not supported by this CPU");
  return ops == nullptr;
}

// Plain reading, four streams per thread: what a decode step could reach at most.
void read_bandwidth(benchmark::State& state) {
  const auto bytes = filled<Bf16>(135'000'000);
  const auto* data = reinterpret_cast<const __m128i*>(bytes.data());
  const auto count = static_cast<std::int64_t>(bytes.size() * 2 / sizeof(__m128i));
  for (auto _ : state) {
    pool().parallel_for(count, 4096, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t quarter = (end - begin) / 4;
      __m128i sums[4] = {};
      for (std::int64_t i = begin; i < begin + quarter; ++i) {
        for (std::int64_t j = 0; j < 4; ++j) {
          const __m128i* at = data + i + j * quarter;
          if (i % 4 == 0) _mm_prefetch(at + 64, _MM_HINT_T0);
          sums[j] = _mm_add_epi64(sums[j], _mm_load_si128(at));
        }
      }
      for (const __m128i& sum : sums) benchmark::DoNotOptimize(sum);
    });
  }
  state.SetBytesProcessed(state.iterations() * count * static_cast<std::int64_t>(sizeof(__m128i)));
}
BENCHMARK(read_bandwidth)->UseRealTime()->Unit(benchmark::kMillisecond);

// A matrix of the model: plain numbers, or Q4_1.
struct Weight {
  TensorView plain;
  std::unique_ptr<QuantMatrix> quantised;
  std::int64_t n = 0, k = 0;
};

// All weight matrices of the model: float32, bfloat16 or Q4_1.
class Weights {
 public:
  explicit Weights(int form) {
    for (std::int64_t l = 0; l < kLayers; ++l) {
      for (const auto& [n, k] :
           {std::pair{std::int64_t{960}, kHidden}, {kHidden, kHidden}, {2 * kInner, kHidden}, {kHidden, kInner}})
        add(n, k);
    }
    add(kVocabulary, kHidden);
    WeightArena arena;
    if (form == 0) plain_ = arena.take(static_cast<std::size_t>(count_) * sizeof(float));
    if (form == 1) plain_ = arena.take(static_cast<std::size_t>(count_) * sizeof(Bf16));
    if (form == 0) fill(reinterpret_cast<float*>(plain_.get()));
    if (form == 1) fill(reinterpret_cast<Bf16*>(plain_.get()));
    std::int64_t first = 0;
    for (Weight& w : all) {
      if (form == 0) w.plain = TensorView::of(plain_.get() + 4 * first, DType::kF32, {w.n, w.k});
      if (form == 1) w.plain = TensorView::of(plain_.get() + 2 * first, DType::kBF16, {w.n, w.k});
      if (form == 2) {
        w.quantised = std::make_unique<QuantMatrix>(QuantFormat::kQ4_1, w.n, w.k, arena);
        const std::vector<std::byte> zeros(static_cast<std::size_t>(w.quantised->row_bytes()));
        for (std::int64_t r = 0; r < w.n; ++r) w.quantised->set_row(r, zeros.data());  // else no page is there
      }
      bytes += w.quantised != nullptr ? w.quantised->bytes() : w.n * w.k * (form == 0 ? 4 : 2);
      first += w.n * w.k;
    }
  }

  std::vector<Weight> all;
  std::int64_t bytes = 0;

 private:
  void add(std::int64_t n, std::int64_t k) {
    all.push_back({{}, nullptr, n, k});
    count_ += n * k;
  }
  template <class T>
  void fill(T* to) const {
    const Buffer<T> some = filled<T>(4099);
    for (std::int64_t i = 0; i < count_; ++i) to[i] = some[static_cast<std::size_t>(i % 4099)];
  }

  std::int64_t count_ = 0;
  std::shared_ptr<std::byte> plain_;
};

// [table, 0 float32 1 bfloat16 2 Q4_1, threads, rows]: the linears of one step of the whole model. GB/s are of weights.
void step_linears(benchmark::State& state) {
  ThreadPool threads(static_cast<int>(state.range(2)));
  const auto ops = make_cpu_ops(threads, table_name(state));
  if (lacks(state, ops.get())) return;
  const std::int64_t rows = state.range(3);
  const Weights weights(static_cast<int>(state.range(1)));
  Buffer<float> x = filled<float>(rows * kInner), out(static_cast<std::size_t>(rows * kVocabulary));
  std::int64_t products = 0;
  for (auto _ : state) {
    for (const Weight& w : weights.all) {
      const TensorView in = TensorView::of(x.data(), DType::kF32, {rows, w.k});
      const TensorView to = TensorView::of(out.data(), DType::kF32, {rows, w.n});
      if (w.quantised != nullptr) {
        ops->linear(in, *w.quantised, to, false);
      } else {
        ops->linear(in, w.plain, to, false);
      }
      products += rows * w.n * w.k;
    }
  }
  state.SetBytesProcessed(state.iterations() * weights.bytes);
  state.counters["FLOP"] = benchmark::Counter(2.0 * static_cast<double>(products), benchmark::Counter::kIsRate);
  state.SetLabel(ops->name() + ", " + ops->quant_name());
}
BENCHMARK(step_linears)
    ->ArgNames({"table", "form", "threads", "rows"})
    ->ArgsProduct({{0, 1}, {0, 1, 2}, {1, 2}, {1, 2, 4, 8, 32}})
    ->ArgsProduct({{2}, {1}, {1, 2}, {1, 2, 4, 8, 32}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// [table, rows, N, K, 0 float32, 1 bfloat16, 2 float16]
void linear(benchmark::State& state) {
  const auto ops = make_cpu_ops(pool(), table_name(state));
  if (lacks(state, ops.get())) return;
  const std::int64_t rows = state.range(1), n = state.range(2), k = state.range(3);
  Buffer<float> x = filled<float>(rows * k), out(static_cast<std::size_t>(rows * n)), w32 = filled<float>(n * k);
  Buffer<Bf16> w16 = filled<Bf16>(n * k);  // as halves numbers too, if others
  const DType type = std::array{DType::kF32, DType::kBF16, DType::kF16}[static_cast<std::size_t>(state.range(4))];
  const TensorView w =
      type == DType::kF32 ? TensorView::of(w32.data(), type, {n, k}) : TensorView::of(w16.data(), type, {n, k});
  for (auto _ : state) {
    ops->linear(TensorView::of(x.data(), DType::kF32, {rows, k}), w, TensorView::of(out.data(), DType::kF32, {rows, n}),
                false);
  }
  state.counters["FLOP"] = benchmark::Counter(
      static_cast<double>(2 * rows * n * k) * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(linear)
    ->ArgsProduct({{0, 1}, {8, 64, 512}, {3072}, {kHidden}, {0, 1, 2}})
    ->ArgsProduct({{0, 1}, {512}, {kHidden}, {kInner}, {1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// [table, rows, format]: the up map of eight layers as a GGUF file stores it, so that one row's weights come from memory.
void quantised(benchmark::State& state) {
  const auto ops = make_cpu_ops(pool(), table_name(state));
  if (lacks(state, ops.get())) return;
  constexpr std::int64_t kWide = 2048, kColumns = 8192, kMatrices = 8;
  const std::int64_t rows = state.range(1);
  const auto format = static_cast<QuantFormat>(state.range(2));
  std::vector<std::unique_ptr<QuantMatrix>> matrices;
  for (std::int64_t i = 0; i < kMatrices; ++i) {
    matrices.push_back(std::make_unique<QuantMatrix>(format, kColumns, kWide));
    const std::vector<std::byte> zeros(static_cast<std::size_t>(matrices.back()->row_bytes()));
    for (std::int64_t r = 0; r < kColumns; ++r) matrices.back()->set_row(r, zeros.data());
  }
  Buffer<float> x = filled<float>(rows * kWide), out(static_cast<std::size_t>(rows * kColumns));
  std::int64_t bytes = 0;
  for (auto _ : state) {
    for (const auto& w : matrices) {
      ops->linear(TensorView::of(x.data(), DType::kF32, {rows, kWide}), *w,
                  TensorView::of(out.data(), DType::kF32, {rows, kColumns}), false);
      bytes += w->bytes();
    }
  }
  state.SetBytesProcessed(bytes);
  state.counters["FLOP"] = benchmark::Counter(
      static_cast<double>(2 * rows * kWide * kColumns * kMatrices * state.iterations()), benchmark::Counter::kIsRate);
  state.SetLabel(std::string(to_string(format)) + " " + ops->quant_name());
}
BENCHMARK(quantised)->ArgsProduct({{0, 1}, {1, 8, 512}, {0, 1, 2, 3, 4}})->UseRealTime()->Unit(benchmark::kMillisecond);

// [table, context, rows]: one slice, SmolLM2's heads, bf16 planes.
void attention(benchmark::State& state) {
  const auto ops = make_cpu_ops(pool(), table_name(state));
  if (lacks(state, ops.get())) return;
  const auto context = static_cast<std::int32_t>(state.range(1)), rows = static_cast<std::int32_t>(state.range(2));
  constexpr std::int32_t kPage = 16;
  std::vector<std::int32_t> table((context + rows + kPage - 1) / kPage);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(table.size() - 1 - i);
  const auto pages = static_cast<std::int64_t>(table.size());
  Buffer<Bf16> k = filled<Bf16>(pages * kPage * 192), v = filled<Bf16>(pages * kPage * 192);
  Buffer<float> q = filled<float>(rows * kHidden), out(q.size());
  const std::vector<std::int32_t> zero = {0}, row_count = {rows}, contexts = {context};
  const PagedBatch batch{zero, row_count, contexts, zero, table, kPage};
  for (auto _ : state) {
    ops->paged_attention(TensorView::of(q.data(), DType::kF32, {rows, 9, 64}), batch,
                         TensorView::of(k.data(), DType::kBF16, {pages, kPage, 3, 64}),
                         TensorView::of(v.data(), DType::kBF16, {pages, kPage, 3, 64}), 0.125f,
                         TensorView::of(out.data(), DType::kF32, {rows, 9, 64}));
  }
  const double keys = rows * (context + (rows + 1) / 2.0);
  state.counters["FLOP"] =
      benchmark::Counter(keys * 9 * 64 * 4 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(attention)
    ->ArgsProduct({{0, 1}, {200, 2000, 8000}, {1}})
    ->ArgsProduct({{0, 1}, {0, 4000}, {512}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// [0 greedy, 1 temperature, 2 top_p, 3 top_k, 4 all, 5 top_p of a flat distribution]
void sampling(benchmark::State& state) {
  const auto ops = make_cpu_ops(pool());
  const SampleParams kinds[] = {{.temperature = 0},
                                {},
                                {.top_p = 0.9f},
                                {.top_k = 50},
                                {.temperature = 0.7f, .top_p = 0.9f, .min_p = 0.05f, .top_k = 50},
                                {.top_p = 0.9f}};
  SampleParams params = kinds[state.range(0)];
  std::mt19937 bits(1);
  std::normal_distribution<float> normal(0, state.range(0) == 5 ? 0.1f : 3.0f);
  std::vector<float> logits(kVocabulary), copy;
  for (float& x : logits) x = normal(bits);
  for (auto _ : state) {
    copy = logits;
    ++params.position;
    benchmark::DoNotOptimize(ops->sample(TensorView::of(copy.data(), DType::kF32, {kVocabulary}), params));
  }
}
BENCHMARK(sampling)->DenseRange(0, 5)->Unit(benchmark::kMicrosecond);

// The price of splitting: an empty parallel_for.
void pool_latency(benchmark::State& state) {
  for (auto _ : state) pool().parallel_for(64, 1, [](std::int64_t, std::int64_t) {});
}
BENCHMARK(pool_latency)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace levada::kernels

BENCHMARK_MAIN();
