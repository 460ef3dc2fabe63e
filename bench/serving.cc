#include "bench/serving.h"

#include <chrono>
#include <future>
#include <random>
#include <unordered_set>

#include "base/thread.h"
#include "engine/worker.h"
#include "sched/scheduler.h"

namespace levada::bench {
namespace {

using Instant = std::chrono::steady_clock::time_point;

double seconds(Instant from, Instant to) { return std::chrono::duration<double>(to - from).count(); }

// Counts the deltas of one batch; the last one fulfils the promise.
class Stopwatch final : public core::OutputSink {
 public:
  // Before the requests are submitted.
  std::future<Result<Timing>> start(std::int32_t requests) {
    waiting_for_first_.clear();
    for (std::int32_t i = 0; i < requests; ++i) waiting_for_first_.insert(next_id + static_cast<std::uint64_t>(i));
    open_ = requests;
    tokens_ = 0;
    timing_ = {};
    failure_ = {};
    done_ = {};
    start_ = std::chrono::steady_clock::now();
    return done_.get_future();
  }

  void on_outputs(std::vector<core::OutputDelta> deltas) override {
    const bool waited = !waiting_for_first_.empty();
    for (const core::OutputDelta& delta : deltas) {
      tokens_ += static_cast<std::int64_t>(delta.token_ids.size());
      if (!delta.token_ids.empty()) waiting_for_first_.erase(core::value(delta.request));
      if (!delta.finish) continue;
      if (delta.finish->reason != core::FinishReason::kLength) failure_ = delta.finish->status;
      --open_;
    }
    const Instant now = std::chrono::steady_clock::now();
    if (waited && waiting_for_first_.empty()) {
      timing_.first_s = seconds(start_, now);
      timing_.tokens_at_first = tokens_;
    }
    if (open_ > 0 || deltas.empty()) return;
    timing_.end_s = seconds(start_, now);
    done_.set_value(failure_.ok() ? Result<Timing>(timing_) : Result<Timing>(failure_));
  }

  std::uint64_t next_id = 1;

 private:
  std::unordered_set<std::uint64_t> waiting_for_first_;
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
       const text::Tokenizer* tokenizer)
      : info(model->info()),
        layout(model->kv_layout()),
        limits{info.context_length_tokens, pool->pages(), info.vocab_size, {0}},
        worker(std::move(model), std::move(pool)),
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
                 std::int32_t chunk_tokens, const text::Tokenizer* tokenizer)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(pool), options_for(max_requests, chunk_tokens),
                                   tokenizer)) {}

Serving::~Serving() { impl_->scheduler.stop(); }  // run() ends, then brain is joined

Result<Timing> Serving::run(const Load& load) {
  auto done = impl_->watch.start(load.requests);
  std::vector<core::Request> requests;
  for (std::int32_t i = 0; i < load.requests; ++i) requests.push_back(impl_->request(load));
  for (core::Request& request : requests) LEVADA_RETURN_IF_ERROR(impl_->scheduler.submit(std::move(request)));
  return done.get();
}

}  // namespace levada::bench
