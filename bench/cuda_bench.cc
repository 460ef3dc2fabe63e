#include "bench/cuda_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "bench/captures.h"
#include "bench/random_decoder.h"
#include "bench/serving.h"
#include "device/module.h"
#include "kernels/cuda/limits.h"

namespace levada::bench {
namespace {

using kernels::cuda::GpuLimits;

constexpr std::int32_t kMaxRequests = 512;
constexpr double kBf16Bytes = 2;
// Long enough for the rate of a server under load: captures are opened one by one, so that a burst's first two steps hold
// a few of them only (4 to 5 ms).
constexpr Load kSmollm2Captures{.requests = 1024, .prompt_tokens = 512},
    kQwen3Captures{.requests = 4, .prompt_tokens = 8192};

Result<GpuLimits> measure_limits() {
  LEVADA_ASSIGN_OR_RETURN(void* const symbol, device::cuda_module_symbol(kernels::cuda::kMeasureGpuLimits));
  Result<GpuLimits> limits = unavailable("the module gave no answer");
  reinterpret_cast<kernels::cuda::MeasureGpuLimits*>(symbol)(&limits);
  return limits;
}

class CudaBench {
 public:
  CudaBench(const RandomDecoder& weights, const GpuLimits& limits, const core::KvLayout& layout, Serving& serving,
            double scale)
      : weights_(weights), limits_(limits), layout_(layout), serving_(serving), scale_(scale) {
    add("read_limit", limits.read_bytes_per_s / 1e9, "GB/s");
    add("product_limit", limits.flops_per_s / 1e12, "TFLOP/s");
  }

  // Tokens per second after every stream has its first, against reading all weights and the streams' KV once a step.
  Status decode(const std::string& name, const Load& load) {
    const std::int64_t total = std::int64_t{load.requests} * load.new_tokens;
    const auto rate = [&](const Timing& t) {
      return static_cast<double>(total - t.tokens_at_first) / (t.end_s - t.first_s);
    };
    const double weight_bytes =
        static_cast<double>(weights_.layer_parameters() + weights_.head_parameters()) * kBf16Bytes;
    const double context = load.prompt_tokens + load.new_tokens / 2.0;
    const double kv_bytes =
        load.requests * context * static_cast<double>(layout_.bytes_per_page()) / layout_.page_size_tokens();
    const double limit = load.requests * limits_.read_bytes_per_s / (weight_bytes + kv_bytes);
    return measure(name, load, rate, limit);
  }

  // Useful tokens per second from the submission of all to the end of the last.
  Status generate(const std::string& name, const Load& load) {
    return measure(
        name, load, [&](const Timing& t) { return double{1} * load.requests * load.new_tokens / t.end_s; }, 0);
  }

  // Prompt tokens per second, against the products at the measured rate (attention's included, norms and head left out).
  Status prefill(const std::string& name, const Load& load) {
    const auto rate = [&](const Timing& t) { return double{1} * load.requests * load.prompt_tokens / t.end_s; };
    const model::ModelConfig& c = weights_.config();
    const double attention = 2.0 * static_cast<double>(c.layers * c.heads * c.head_dim) * load.prompt_tokens;
    const double flops_per_token = 2.0 * static_cast<double>(weights_.layer_parameters()) + attention;
    return measure(name, load, rate, limits_.flops_per_s / flops_per_token);
  }

  // The same prompts without and with captures, turn about, so that both meet the same machine.
  Status capture(Load load) {
    const int samples = samples_of(9);
    std::vector<double> plain, captured;
    for (int i = -1; i < samples; ++i) {  // the first warms up and is not counted
      for (std::vector<double>* rates : {&plain, &captured}) {
        load.captured = rates == &captured;
        LEVADA_ASSIGN_OR_RETURN(const Timing timing, serving_.run(load));
        if (i >= 0) rates->push_back(double{1} * load.requests * load.prompt_tokens / timing.end_s);
      }
    }
    cases_.push_back(summarize_rates("capture_plain", std::move(plain), "tok/s"));
    const double without = cases_.back().median;
    cases_.push_back(summarize_rates("capture_on", std::move(captured), "tok/s"));
    const double with = cases_.back().median;
    std::fprintf(stderr, "capture: %.4g tok/s without, %.4g with\n", without, with);
    add("capture_overhead", 1 - with / without, "share");
    return {};
  }

  std::vector<Case> take() { return std::move(cases_); }

 private:
  void add(std::string name, double value, std::string unit) {
    std::fprintf(stderr, "%s %.4g %s\n", name.c_str(), value, unit.c_str());
    cases_.push_back(summarize_rates(std::move(name), {value}, std::move(unit)));
  }

  int samples_of(double count) const { return std::max(1, static_cast<int>(std::lround(count * scale_))); }

  Status measure(const std::string& name, const Load& load, const std::function<double(const Timing&)>& rate,
                 double limit) {
    const int samples = samples_of(5);
    std::vector<double> rates;
    for (int i = -1; i < samples; ++i) {  // the first warms up and is not counted
      LEVADA_ASSIGN_OR_RETURN(const Timing timing, serving_.run(load));
      if (i >= 0) rates.push_back(rate(timing));
    }
    cases_.push_back(summarize_rates(name, std::move(rates), "tok/s"));
    const double median = cases_.back().median;
    std::fprintf(stderr, "%s %.4g tok/s\n", name.c_str(), median);
    if (limit > 0) add(name + "_of_limit", median / limit, "share");
    return {};
  }

  const RandomDecoder& weights_;
  const GpuLimits limits_;
  const core::KvLayout layout_;
  Serving& serving_;
  const double scale_;
  std::vector<Case> cases_;
};

Status run_smollm2(CudaBench& bench) {
  LEVADA_RETURN_IF_ERROR(bench.decode("decode_1", {1, 32, 300}));
  LEVADA_RETURN_IF_ERROR(bench.generate("generate_512", {512, 32, 300}));
  LEVADA_RETURN_IF_ERROR(bench.prefill("prefill_32x512", {32, 512, 1}));
  return bench.capture(kSmollm2Captures);
}

Status run_qwen3_8b(CudaBench& bench) {
  LEVADA_RETURN_IF_ERROR(bench.decode("decode_1", {1, 32, 100}));
  LEVADA_RETURN_IF_ERROR(bench.decode("decode_64_at_2k", {64, 2048, 64}));
  LEVADA_RETURN_IF_ERROR(bench.prefill("prefill_8k", {1, 8192, 1}));
  return bench.capture(kQwen3Captures);
}

}  // namespace

Result<std::vector<Case>> run_cuda_bench(std::string_view shape, double scale, const text::Tokenizer* tokenizer) {
  LEVADA_ASSIGN_OR_RETURN(RandomDecoder weights, RandomDecoder::of_shape(shape));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<device::Device> device, device::open_device(device::DeviceKind::kCuda));
  LEVADA_ASSIGN_OR_RETURN(const GpuLimits limits, measure_limits());
  LEVADA_ASSIGN_OR_RETURN(
      std::unique_ptr<model::Model> model,
      model::make_cuda_model(
          weights,
          {.warmup_folder = std::filesystem::temp_directory_path() / "levada-bench", .max_graph_rows = kMaxRequests},
          *device));
  const core::KvLayout layout = model->kv_layout();
  constexpr std::int64_t kPoolTokens = 512 * 512;
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<model::KvPool> pool, model->make_kv_pool(layout.pages_for(kPoolTokens)));
  const Load& captured = shape == "smollm2" ? kSmollm2Captures : kQwen3Captures;
  Captures captures(weights.info(), captured.requests, captured.prompt_tokens, device.get());
  Serving serving(std::move(model), std::move(pool), kMaxRequests, 16'384, tokenizer, &captures);
  CudaBench bench(weights, limits, layout, serving, scale);
  LEVADA_RETURN_IF_ERROR(shape == "smollm2" ? run_smollm2(bench) : run_qwen3_8b(bench));
  return bench.take();
}

}  // namespace levada::bench
