#include "engine/worker.h"

#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/mailbox.h"
#include "base/thread.h"
#include "engine/layer_loop.h"

namespace levada::engine {

struct Worker::Impl {
  struct Started {
    core::StepResult result;  // all but the tokens
    Result<std::unique_ptr<model::SampledTokens>> tokens;
  };

  Impl(std::unique_ptr<model::Model> m, std::unique_ptr<model::KvPool> p, capture::RowSink* r)
      : model(std::move(m)), pool(std::move(p)), rows(r) {}

  void run() {
    std::vector<std::unique_ptr<core::StepPlan>> plans;
    while (mailbox.take(plans)) {
      for (auto& plan : plans) {
        core::StepResult result;
        result.step = plan->step;
        auto tokens = start(*plan, result);
        Started step{std::move(result), std::move(tokens)};
        if (model->runs_ahead()) {
          started.push(std::move(step));
        } else {
          deliver(step);
        }
      }
      plans.clear();
    }
    started.close();
  }

  void run_delivery() {
    std::vector<Started> steps;
    while (started.take(steps)) {
      for (Started& step : steps) deliver(step);
      steps.clear();
    }
  }

  Result<std::unique_ptr<model::SampledTokens>> start(core::StepPlan& plan, core::StepResult& result) {
    try {
      if (!model->runs_ahead()) LEVADA_RETURN_IF_ERROR(fill_future_tokens(plan, previous_samples));
      LEVADA_ASSIGN_OR_RETURN(const std::shared_ptr<const model::Draft> draft, draft_of(plan));
      return run_layers(*model, *pool, draft, plan, rows, result);
    } catch (const std::exception& failure) {  // memory, mostly: torch's own exceptions end in model
      return internal_error(std::string("the step failed: ") + failure.what());
    }
  }

  Result<std::shared_ptr<const model::Draft>> draft_of(const core::StepPlan& plan) {
    if (plan.draft == core::kNoDraft) return std::shared_ptr<const model::Draft>();
    std::lock_guard lock(drafts_mutex);
    const auto found = drafts.find(plan.draft);
    if (found == drafts.end()) return internal_error("step plan: a draft that was never offered");
    return found->second;
  }

  void deliver(Started& step) {
    core::StepResult& result = step.result;
    Result<model::StepTokens> tokens =
        step.tokens.ok() ? step.tokens.value()->wait() : Result<model::StepTokens>(step.tokens.status());
    if (tokens.ok()) {
      result.sampled = std::move(tokens->sampled);
      result.proposed = std::move(tokens->proposed);
    } else {
      result.status = tokens.status();
      find_loss(result);
    }
    if (!model->runs_ahead()) previous_samples = result.sampled;
    sink(std::move(result));
  }

  // A failed step whose device keeps its error gets that error: what failed here may be only a consequence.
  void find_loss(core::StepResult& result) {
    const Status health = model->health();
    if (health.ok()) return;
    result.executor_lost = true;
    if (!std::exchange(loss_said, true)) {
      LEVADA_LOG_ERROR("the device is lost until this process is restarted: ", health.message(), "; step ",
                       core::value(result.step), " failed with: ", result.status.message());
    }
    result.status = internal_error("the device is lost: " + health.message());
  }

  std::unique_ptr<model::Model> model;  // outlives the pool
  std::unique_ptr<model::KvPool> pool;
  capture::RowSink* const rows;
  std::function<void(core::StepResult)> sink;
  std::vector<core::Token> previous_samples;
  std::mutex drafts_mutex;
  std::map<core::DraftVersion, std::shared_ptr<const model::Draft>> drafts;  // that plans may name
  bool loss_said = false;
  Mailbox<std::unique_ptr<core::StepPlan>> mailbox;
  Mailbox<Started> started;
  Thread thread, delivery;
};

Worker::Worker(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool, capture::RowSink* rows)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(pool), rows)) {}

Worker::~Worker() {
  impl_->mailbox.close();
  impl_->thread.join();
  if (impl_->delivery.joinable()) impl_->delivery.join();
}

void Worker::set_result_sink(std::function<void(core::StepResult)> sink) {
  LEVADA_CHECK(!impl_->thread.joinable(), "the sink is set once");
  impl_->sink = std::move(sink);
  impl_->thread = Thread("levada-worker", [impl = impl_.get()] {
    impl->model->settle_thread();
    impl->run();
  });
  if (impl_->model->runs_ahead()) {
    impl_->delivery = Thread("levada-tokens", [impl = impl_.get()] { impl->run_delivery(); });
  }
}

void Worker::submit(std::unique_ptr<core::StepPlan> plan) {
  LEVADA_CHECK(impl_->thread.joinable(), "the sink is set before the first plan");
  LEVADA_CHECK(impl_->mailbox.push(std::move(plan)), "plans come while the worker lives");
}

void Worker::offer_draft(core::DraftVersion version, std::shared_ptr<const model::Draft> draft) {
  LEVADA_CHECK(version != core::kNoDraft && draft != nullptr, "a draft and its name");
  std::lock_guard lock(impl_->drafts_mutex);
  LEVADA_CHECK(impl_->drafts.emplace(version, std::move(draft)).second, "a version is offered once");
}

void Worker::withdraw_draft(core::DraftVersion version) {
  std::lock_guard lock(impl_->drafts_mutex);
  impl_->drafts.erase(version);
}

model::Model& Worker::model() { return *impl_->model; }
const model::Model& Worker::model() const { return *impl_->model; }
const model::KvPool& Worker::pool() const { return *impl_->pool; }

}  // namespace levada::engine
