#include "bench/decode_bench.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <random>

#include "base/mailbox.h"
#include "bench/captures.h"
#include "bench/read_limit.h"
#include "engine/worker.h"

namespace levada::bench {
namespace {

constexpr std::int32_t kStreams = 8, kPromptTokens = 64, kPrefillTokens = 512, kStepsPerSample = 16;
constexpr std::int32_t kTokensPerStream = std::max(kPrefillTokens, kPromptTokens + kStepsPerSample);

// Streams with pages of their own, and the plans that move them on.
class Streams {
 public:
  Streams(const core::KvLayout& layout, const core::ModelInfo& info)
      : pages_(layout.pages_for(kTokensPerStream)), vocabulary_(info.vocab_size) {}

  void restart() { computed_.assign(kStreams, 0); }

  // The next `count` tokens of the first `streams` streams: random prompt tokens, or the ones just sampled.
  std::unique_ptr<core::StepPlan> plan(std::int32_t streams, std::int32_t count, bool future) {
    auto plan = std::make_unique<core::StepPlan>();
    for (std::int32_t s = 0; s < streams; ++s) {
      std::int32_t& computed = computed_[static_cast<std::size_t>(s)];
      core::PlanSlice slice;
      slice.range = {core::RequestId{static_cast<std::uint64_t>(s)}, computed, count};
      slice.first_row = static_cast<std::int32_t>(plan->tokens.size());
      slice.block_table_first = s * pages_;
      slice.block_table_pages = pages_;
      slice.sample_row = s;
      for (std::int32_t page = 0; page < pages_; ++page) plan->block_tables.push_back(s * pages_ + page);
      if (future) plan->future_tokens.push_back({slice.first_row, s});
      for (std::int32_t i = 0; i < count; ++i) {
        plan->tokens.push_back(static_cast<core::Token>(random_() % static_cast<std::uint32_t>(vocabulary_)));
        plan->positions.push_back(computed + i);
      }
      computed += count;
      core::SampleRow sample;
      sample.row = slice.first_row + count - 1;
      sample.position = computed;
      sample.temperature = 0;
      plan->samples.push_back(sample);
      plan->slices.push_back(slice);
    }
    return plan;
  }

 private:
  std::int32_t pages_, vocabulary_;
  std::vector<std::int32_t> computed_ = std::vector<std::int32_t>(kStreams, 0);
  std::mt19937 random_{7};
};

// A worker whose results are waited for; at most two plans are in flight, as in serving.
class Driver {
 public:
  Driver(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool)
      : streams_(model->kv_layout(), model->info()),
        captures_(model->info(), 1, kPrefillTokens, nullptr),
        worker_(std::move(model), std::move(pool), captures_.sink()) {
    worker_.set_result_sink([this](core::StepResult result) { results_.push(std::move(result)); });
  }

  // Tokens per second of each sample: a fresh prompt, untimed, then kStepsPerSample decode steps.
  Result<Case> decode(std::int32_t streams, std::int32_t samples) {
    std::vector<double> rates;
    for (std::int32_t sample = -1; sample < samples; ++sample) {  // the first warms caches and is not counted
      streams_.restart();
      submit(streams_.plan(streams, kPromptTokens, false));
      LEVADA_RETURN_IF_ERROR(drain());
      const auto start = std::chrono::steady_clock::now();
      for (std::int32_t step = 0; step < kStepsPerSample; ++step) {
        submit(streams_.plan(streams, 1, true));
        while (in_flight_ > 1) LEVADA_RETURN_IF_ERROR(take());
      }
      LEVADA_RETURN_IF_ERROR(drain());
      if (sample >= 0) rates.push_back(rate(streams * kStepsPerSample, start));
    }
    return summarize_rates("decode_" + std::to_string(streams), std::move(rates), "tok/s");
  }

  // Turn about, so that both meet the same machine: plain, then captured and published.
  Status prefill(std::int32_t samples, std::vector<Case>& cases) {
    std::vector<double> plain, captured;
    for (std::int32_t sample = -1; sample < samples; ++sample) {
      for (std::vector<double>* rates : {&plain, &captured}) {
        streams_.restart();
        auto plan = streams_.plan(1, kPrefillTokens, false);
        const auto start = std::chrono::steady_clock::now();
        if (rates == &captured) LEVADA_RETURN_IF_ERROR(begin_capture(*plan));
        submit(std::move(plan));
        LEVADA_RETURN_IF_ERROR(drain());
        if (rates == &captured) LEVADA_RETURN_IF_ERROR(end_capture());
        if (sample >= 0) rates->push_back(rate(kPrefillTokens, start));
      }
    }
    cases.push_back(summarize_rates("prefill_512", std::move(plain), "tok/s"));
    cases.push_back(summarize_rates("prefill_512_captured", std::move(captured), "tok/s"));
    return {};
  }

 private:
  static double rate(std::int32_t tokens, std::chrono::steady_clock::time_point start) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return tokens / seconds.count();
  }
  // Asks for every row of the plan's one slice.
  Status begin_capture(core::StepPlan& plan) {
    std::promise<Result<core::CaptureRequest>> answer;
    captures_.open(kPrefillTokens, [&](auto opened) { answer.set_value(std::move(opened)); });
    LEVADA_ASSIGN_OR_RETURN(const core::CaptureRequest request, answer.get_future().get());
    capture_ = request.id;
    plan.capture_layers = request.layers;
    plan.captures = {{0, request.id, 0, static_cast<std::int32_t>(request.layers.size()), false}};
    return {};
  }
  Status end_capture() {
    std::promise<Status> answer;
    captures_.seal(capture_, [&](Status sealed) { answer.set_value(std::move(sealed)); });
    LEVADA_RETURN_IF_ERROR(answer.get_future().get());
    captures_.clear();
    return {};
  }
  void submit(std::unique_ptr<core::StepPlan> plan) {
    ++in_flight_;
    worker_.submit(std::move(plan));
  }
  Status take() {
    std::vector<core::StepResult> taken;
    results_.take(taken);
    in_flight_ -= static_cast<int>(taken.size());
    for (const core::StepResult& result : taken) LEVADA_RETURN_IF_ERROR(result.status);
    return {};
  }
  Status drain() {
    while (in_flight_ > 0) LEVADA_RETURN_IF_ERROR(take());
    return {};
  }

  Streams streams_;
  Captures captures_;
  core::CaptureId capture_{};
  int in_flight_ = 0;
  Mailbox<core::StepResult> results_;
  engine::Worker worker_;  // goes first: its sink uses the mailbox
};

}  // namespace

std::int32_t decode_bench_pages(const core::KvLayout& layout) { return layout.pages_for(kTokensPerStream) * kStreams; }

Result<std::vector<Case>> run_decode_bench(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool,
                                           double scale) {
  const std::int32_t wanted = decode_bench_pages(model->kv_layout());
  if (pool->pages() < wanted) {
    return resource_exhausted("the decode bench needs a KV pool of " + std::to_string(wanted) +
                              " pages, this one has " + std::to_string(pool->pages()));
  }
  if (model->info().context_length_tokens < kTokensPerStream) {
    return invalid_argument("the decode bench needs a context of " + std::to_string(kTokensPerStream) +
                            " tokens, got " + std::to_string(model->info().context_length_tokens));
  }
  const auto samples = [&](double count) { return std::max(1, static_cast<std::int32_t>(std::lround(count * scale))); };
  const auto weight_bytes = static_cast<double>(model->memory().front().bytes);
  Driver driver(std::move(model), std::move(pool));
  std::vector<Case> cases;
  std::vector<double> limits = measure_read_limit(samples(5));
  LEVADA_ASSIGN_OR_RETURN(Case one, driver.decode(1, samples(20)));
  const std::vector<double> after = measure_read_limit(samples(5));
  limits.insert(limits.end(), after.begin(), after.end());
  for (double& limit : limits) limit /= weight_bytes;
  cases.push_back(summarize_rates("decode_1_limit", std::move(limits), "tok/s"));
  cases.push_back(std::move(one));
  LEVADA_ASSIGN_OR_RETURN(Case eight, driver.decode(kStreams, samples(10)));
  cases.push_back(std::move(eight));
  LEVADA_RETURN_IF_ERROR(driver.prefill(samples(10), cases));
  return cases;
}

}  // namespace levada::bench
