#include "bench/decode_bench.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <random>

#include "base/clock.h"
#include "base/mailbox.h"
#include "capture/publisher.h"
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

// Publishes the samples of the capture case: the outputs of five layers, as a DFlash draft wants them.
class Captures {
 public:
  explicit Captures(const core::ModelInfo& info) : hidden_size_(info.hidden_size) {
    for (std::int32_t i = 0; i < std::min(info.num_layers, 5); ++i) layers_.push_back(i * info.num_layers / 5);
    layers_.erase(std::unique(layers_.begin(), layers_.end()), layers_.end());
    const std::uint64_t sample = layers_.size() * 2 * kPrefillTokens * static_cast<std::uint64_t>(hidden_size_);
    arena_ = store::Arena::create({.bytes = 2 * sample + (1 << 20)}, clock_).value();
    publisher_ = std::make_unique<capture::Publisher>(
        *arena_,
        capture::Publisher::Options{{.store_id = "bench", .layers = info.num_layers, .hidden_size = hidden_size_},
                                    1'000'000},
        metrics_);
  }
  capture::RowSink* sink() { return publisher_.get(); }

  // Asks for every row of the plan's one slice.
  Status begin(core::StepPlan& plan) {
    capture::SampleSpec spec{.store_id = "bench", .sample_id = "bench:" + std::to_string(++samples_)};
    spec.features.push_back({"hidden_states", layers_, DType::kBF16});
    std::promise<Result<capture::Publisher::Opened>> answer;
    publisher_->open(std::move(spec), kPrefillTokens, [&](auto opened) { answer.set_value(std::move(opened)); });
    LEVADA_ASSIGN_OR_RETURN(const capture::Publisher::Opened opened, answer.get_future().get());
    id_ = std::get<core::CaptureId>(opened);
    plan.capture_layers = layers_;
    plan.captures = {{0, id_, 0, static_cast<std::int32_t>(layers_.size()), false}};
    return {};
  }
  Status end() {
    std::promise<Result<capture::Published>> answer;
    publisher_->seal(id_, [&](auto sealed) { answer.set_value(std::move(sealed)); });
    LEVADA_ASSIGN_OR_RETURN(const capture::Published published, answer.get_future().get());
    arena_->remove_prefix("bench/" + published.sample_id + "/");
    return {};
  }

 private:
  const std::int32_t hidden_size_;
  std::vector<std::int32_t> layers_;
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<store::Arena> arena_;
  std::unique_ptr<capture::Publisher> publisher_;
  core::CaptureId id_{};
  int samples_ = 0;
};

// A worker whose results are waited for; at most two plans are in flight, as in serving.
class Driver {
 public:
  Driver(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool)
      : streams_(model->kv_layout(), model->info()),
        captures_(model->info()),
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
        if (rates == &captured) LEVADA_RETURN_IF_ERROR(captures_.begin(*plan));
        submit(std::move(plan));
        LEVADA_RETURN_IF_ERROR(drain());
        if (rates == &captured) LEVADA_RETURN_IF_ERROR(captures_.end());
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
  Driver driver(std::move(model), std::move(pool));
  std::vector<Case> cases;
  LEVADA_ASSIGN_OR_RETURN(Case one, driver.decode(1, samples(20)));
  cases.push_back(std::move(one));
  LEVADA_ASSIGN_OR_RETURN(Case eight, driver.decode(kStreams, samples(10)));
  cases.push_back(std::move(eight));
  LEVADA_RETURN_IF_ERROR(driver.prefill(samples(10), cases));
  return cases;
}

}  // namespace levada::bench
