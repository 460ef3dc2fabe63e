#include "bench/sched_bench.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace levada::bench {
namespace {

constexpr std::int32_t kPromptTokens = 128;
constexpr std::int32_t kPageSize = 16;
constexpr std::int32_t kPagesPerRequest = 512;  // contexts grow by a token a sample
constexpr std::int32_t kMostSteps = 5000;
constexpr std::int32_t kVocab = 30'000;

// Answers when told, with tokens that differ from row to row and step to step.
class NullExecutor final : public core::StepExecutor {
 public:
  void submit(std::unique_ptr<core::StepPlan> plan) override { plans_.push_back(std::move(plan)); }
  void set_result_sink(std::function<void(core::StepResult)> sink) override { sink_ = std::move(sink); }
  void complete_one() {
    LEVADA_CHECK(!plans_.empty(), "the scheduler keeps a plan in flight");
    core::StepResult result;
    result.step = plans_.front()->step;
    for (std::size_t i = 0; i < plans_.front()->samples.size(); ++i) result.sampled.push_back(next_token());
    plans_.pop_front();
    sink_(std::move(result));
  }

 private:
  core::Token next_token() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return 1000 + static_cast<core::Token>((state_ >> 33) % (kVocab - 1000));
  }
  std::deque<std::unique_ptr<core::StepPlan>> plans_;
  std::function<void(core::StepResult)> sink_;
  std::uint64_t state_ = 1;
};

class CountingSink final : public core::OutputSink {
 public:
  void on_outputs(std::vector<core::OutputDelta> deltas) override { count += static_cast<std::int64_t>(deltas.size()); }
  std::int64_t count = 0;
};

core::Request request(std::int32_t number) {
  core::Request request;
  request.id = core::RequestId{static_cast<std::uint64_t>(number) + 1};
  for (std::int32_t t = 0; t < kPromptTokens; ++t) request.prompt.push_back((number * 131 + t * 7) % kVocab);
  request.sampling.max_new_tokens = 1'000'000;
  request.sampling.ignore_eos = true;
  return request;
}

// One sample is one step of `requests` that decode with one step of lookahead.
Case step_case(std::int32_t requests, std::int32_t samples, const text::Tokenizer* tokenizer) {
  SystemClock clock;
  Metrics metrics;
  NullExecutor executor;
  CountingSink sink;
  const core::KvLayout layout(kPageSize, {{"k", "target", DType::kBF16, 1, {0}}});
  sched::Options options;
  options.max_running_requests = requests;
  options.chunked_prefill_size = requests * kPromptTokens;
  const std::int32_t pages = requests * kPagesPerRequest;
  sched::Scheduler scheduler(options, {1'000'000, pages, kVocab, {2}}, layout, executor, sink, tokenizer, clock,
                             metrics);
  for (std::int32_t i = 0; i < requests; ++i) LEVADA_CHECK(scheduler.submit(request(i)).ok(), "it never stops");
  scheduler.step();  // prefill of all
  scheduler.step();  // first decode, looked ahead

  Sampling sampling;
  sampling.samples = samples;
  Case result = sample_us(
      "step_" + std::to_string(requests) + "r", sampling, [&] { executor.complete_one(); }, [&] { scheduler.step(); });
  LEVADA_CHECK(sink.count >= requests * samples, "every step advanced every request");
  // Nothing may stay unfinished when the pages go.
  scheduler.stop();
  scheduler.step();
  executor.complete_one();
  scheduler.step();
  return result;
}

}  // namespace

std::vector<Case> run_sched_bench(double scale, const text::Tokenizer* tokenizer) {
  const auto samples = [&](double full) { return std::clamp(static_cast<std::int32_t>(full * scale), 1, kMostSteps); };
  return {step_case(64, samples(2000), tokenizer), step_case(512, samples(500), tokenizer)};
}

}  // namespace levada::bench
