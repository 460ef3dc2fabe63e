#include "bench/serving.h"

#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <unordered_set>

#include "base/thread.h"
#include "bench/captures.h"
#include "engine/worker.h"
#include "sched/scheduler.h"

namespace levada::bench {
namespace {

using Instant = std::chrono::steady_clock::time_point;

double seconds(Instant from, Instant to) { return std::chrono::duration<double>(to - from).count(); }

// Counts the deltas of one batch; the last end fulfils the promise. A captured request ends when its sample is readable.
// Thread: outputs come on the scheduler's, ends of captures on the publisher's.
class Stopwatch final : public core::OutputSink {
 public:
  explicit Stopwatch(Captures* captures) : captures_(captures) {}

  // Before the requests are submitted.
  std::future<Result<Timing>> start(std::span<const core::Request> requests) {
    std::lock_guard lock(mutex_);
    waiting_for_first_.clear();
    for (const core::Request& request : requests) waiting_for_first_.insert(core::value(request.id));
    open_ = static_cast<std::int32_t>(requests.size());
    tokens_ = 0;
    timing_ = {};
    failure_ = {};
    done_ = {};
    start_ = std::chrono::steady_clock::now();
    return done_.get_future();
  }
  void expect_capture(core::RequestId request, core::CaptureId capture) {
    std::lock_guard lock(mutex_);
    captured_[request] = capture;
  }
  void end_one(const Status& status) {
    std::lock_guard lock(mutex_);
    if (!status.ok()) failure_ = status;
    if (--open_ > 0) return;
    timing_.end_s = seconds(start_, std::chrono::steady_clock::now());
    done_.set_value(failure_.ok() ? Result<Timing>(timing_) : Result<Timing>(failure_));
  }

  void on_outputs(std::vector<core::OutputDelta> deltas) override {
    {
      std::lock_guard lock(mutex_);
      const bool waited = !waiting_for_first_.empty();
      for (const core::OutputDelta& delta : deltas) {
        tokens_ += static_cast<std::int64_t>(delta.token_ids.size());
        if (!delta.token_ids.empty()) waiting_for_first_.erase(core::value(delta.request));
      }
      if (waited && waiting_for_first_.empty()) {
        timing_.first_s = seconds(start_, std::chrono::steady_clock::now());
        timing_.tokens_at_first = tokens_;
      }
    }
    for (const core::OutputDelta& delta : deltas)
      if (delta.finish) on_finish(delta.request, *delta.finish);
  }

  std::uint64_t next_id = 1;

 private:
  void on_finish(core::RequestId request, const core::Finish& finish) {
    if (finish.reason != core::FinishReason::kLength) return end_one(finish.status);
    core::CaptureId capture{};
    {
      std::lock_guard lock(mutex_);
      const auto found = captured_.find(request);
      if (found != captured_.end()) {
        capture = found->second;
        captured_.erase(found);
      }
    }
    if (capture == core::CaptureId{}) return end_one({});
    captures_->seal(capture, [this](const Status& sealed) { end_one(sealed); });
  }

  Captures* const captures_;
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> waiting_for_first_;
  std::map<core::RequestId, core::CaptureId> captured_;
  std::int32_t open_ = 0;
  std::int64_t tokens_ = 0;
  Timing timing_;
  Status failure_;
  std::promise<Result<Timing>> done_;
  Instant start_;
};

sched::Options options_for(std::int32_t max_requests, std::int32_t chunk_tokens) {
  sched::Options options;
  options.max_running_requests = max_requests;
  options.chunked_prefill_size = chunk_tokens;
  options.max_prefill_tokens = chunk_tokens;
  return options;
}

}  // namespace

struct Serving::Impl {
  Impl(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool, const sched::Options& options,
       const text::Tokenizer* tokenizer, Captures* c)
      : captures(c),
        info(model->info()),
        layout(model->kv_layout()),
        limits{info.context_length_tokens, pool->pages(), info.vocab_size, {0}},
        watch(c),
        worker(std::move(model), std::move(pool), c == nullptr ? nullptr : c->sink()),
        scheduler(options, limits, layout, worker, watch, tokenizer, clock, metrics),
        brain("levada-sched", [this] { scheduler.run(); }) {}

  core::Request request(const Load& load) {
    core::Request request;
    request.id = core::RequestId{watch.next_id++};
    for (std::int32_t i = 0; i < load.prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<core::Token>(random() % static_cast<std::uint32_t>(info.vocab_size)));
    }
    request.sampling.temperature = 0;
    request.sampling.max_new_tokens = load.new_tokens;
    request.sampling.ignore_eos = true;
    return request;
  }

  void submit(core::Request request) {
    if (const Status taken = scheduler.submit(std::move(request)); !taken.ok()) watch.end_one(taken);
  }
  void submit_captured(core::Request request) {
    LEVADA_CHECK(captures != nullptr, "captures have somewhere to go");
    const auto tokens = static_cast<std::int32_t>(request.prompt.size());
    captures->open(tokens, [this, request = std::move(request)](Result<core::CaptureRequest> opened) mutable {
      if (!opened.ok()) return watch.end_one(opened.status());
      watch.expect_capture(request.id, opened->id);
      request.capture = std::move(*opened);
      submit(std::move(request));
    });
  }

  Captures* const captures;
  const core::ModelInfo info;
  const core::KvLayout layout;
  const sched::Limits limits;
  SystemClock clock;
  Metrics metrics;
  Stopwatch watch;
  std::mt19937 random{5};
  engine::Worker worker;
  sched::Scheduler scheduler;
  Thread brain;
};

Serving::Serving(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool, std::int32_t max_requests,
                 std::int32_t chunk_tokens, const text::Tokenizer* tokenizer, Captures* captures)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(pool), options_for(max_requests, chunk_tokens),
                                   tokenizer, captures)) {}

Serving::~Serving() { impl_->scheduler.stop(); }  // run() ends, then brain is joined

Result<Timing> Serving::run(const Load& load) {
  std::vector<core::Request> requests;
  for (std::int32_t i = 0; i < load.requests; ++i) requests.push_back(impl_->request(load));
  auto done = impl_->watch.start(requests);
  for (core::Request& request : requests) {
    if (load.captured) {
      impl_->submit_captured(std::move(request));
    } else {
      impl_->submit(std::move(request));
    }
  }
  Result<Timing> timing = done.get();
  if (load.captured) impl_->captures->clear();
  return timing;
}

}  // namespace levada::bench
