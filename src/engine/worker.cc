#include "engine/worker.h"

#include <exception>

#include "base/mailbox.h"
#include "base/thread.h"
#include "engine/layer_loop.h"

namespace levada::engine {

struct Worker::Impl {
  Impl(std::unique_ptr<model::Model> m, std::unique_ptr<model::KvPool> p, capture::RowSink* r)
      : model(std::move(m)), pool(std::move(p)), rows(r) {}

  void run() {
    std::vector<std::unique_ptr<core::StepPlan>> plans;
    while (mailbox.take(plans)) {
      for (auto& plan : plans) sink(execute(*plan));
      plans.clear();
    }
  }

  core::StepResult execute(core::StepPlan& plan) {
    core::StepResult result;
    result.step = plan.step;
    Result<std::vector<core::Token>> sampled = compute(plan);
    if (sampled.ok()) {
      result.sampled = std::move(sampled).value();
    } else {
      result.status = sampled.status();
    }
    previous_samples = result.sampled;
    return result;
  }

  Result<std::vector<core::Token>> compute(core::StepPlan& plan) {
    try {
      LEVADA_RETURN_IF_ERROR(fill_future_tokens(plan, previous_samples));
      return run_layers(*model, *pool, plan, rows);
    } catch (const std::exception& failure) {  // memory, mostly: torch's own exceptions end in model
      return internal_error(std::string("the step failed: ") + failure.what());
    }
  }

  std::unique_ptr<model::Model> model;  // outlives the pool
  std::unique_ptr<model::KvPool> pool;
  capture::RowSink* const rows;
  std::function<void(core::StepResult)> sink;
  std::vector<core::Token> previous_samples;
  Mailbox<std::unique_ptr<core::StepPlan>> mailbox;
  Thread thread;
};

Worker::Worker(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool, capture::RowSink* rows)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(pool), rows)) {}

Worker::~Worker() {
  impl_->mailbox.close();
  impl_->thread.join();
}

void Worker::set_result_sink(std::function<void(core::StepResult)> sink) {
  LEVADA_CHECK(!impl_->thread.joinable(), "the sink is set once");
  impl_->sink = std::move(sink);
  impl_->thread = Thread("levada-worker", [impl = impl_.get()] { impl->run(); });
}

void Worker::submit(std::unique_ptr<core::StepPlan> plan) {
  LEVADA_CHECK(impl_->thread.joinable(), "the sink is set before the first plan");
  LEVADA_CHECK(impl_->mailbox.push(std::move(plan)), "plans come while the worker lives");
}

const model::Model& Worker::model() const { return *impl_->model; }
const model::KvPool& Worker::pool() const { return *impl_->pool; }

}  // namespace levada::engine
