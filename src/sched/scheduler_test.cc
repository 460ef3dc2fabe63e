#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <thread>

#include "base/thread.h"
#include "sched/sim/scripted_model.h"

namespace levada::sched {
namespace {

using core::FinishReason;
using core::RequestId;

// Computes every plan on a thread of its own, as a worker does; while held, only as many as allowed.
class ThreadedModel final : public core::StepExecutor {
 public:
  ThreadedModel() : model_(64, 4, 320), worker_("model", [this] { loop(); }) {}
  ~ThreadedModel() override {
    release();
    plans_.close();
  }
  void submit(std::unique_ptr<core::StepPlan> plan) override { plans_.push(std::move(plan)); }
  void set_result_sink(std::function<void(core::StepResult)> sink) override { model_.set_result_sink(std::move(sink)); }

  void hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
  }
  void allow(int plans) {
    std::lock_guard lock(mutex_);
    allowed_ += plans;
    gate_.notify_all();
  }
  void release() {
    std::lock_guard lock(mutex_);
    held_ = false;
    gate_.notify_all();
  }

 private:
  void wait_at_gate() {
    std::unique_lock lock(mutex_);
    gate_.wait(lock, [&] { return !held_ || allowed_ > 0; });
    if (held_) --allowed_;
  }
  void loop() {
    std::vector<std::unique_ptr<core::StepPlan>> taken;
    while (plans_.take(taken)) {
      for (auto& plan : taken) {
        wait_at_gate();
        model_.submit(std::move(plan));
        model_.compute_one();
      }
      taken.clear();
    }
  }
  sim::ScriptedModel model_;
  std::mutex mutex_;
  std::condition_variable gate_;
  bool held_ = false;
  int allowed_ = 0;
  Mailbox<std::unique_ptr<core::StepPlan>> plans_;
  Thread worker_;
};

class RecordingSink final : public core::OutputSink {
 public:
  void on_outputs(std::vector<core::OutputDelta> deltas) override {
    std::lock_guard lock(mutex_);
    for (core::OutputDelta& delta : deltas) {
      tokens_[delta.request] += delta.token_ids.size();
      if (delta.finish) finishes_[delta.request].push_back(std::move(*delta.finish));
    }
    changed_.notify_all();
  }
  core::Finish wait_for_finish(std::uint64_t id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !finishes_[RequestId{id}].empty(); });
    return finishes_[RequestId{id}].front();
  }
  void wait_for_tokens(std::uint64_t id, std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_[RequestId{id}] >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::size_t> tokens_;
  std::map<RequestId, std::vector<core::Finish>> finishes_;
};

struct Running {
  Running() : loop("sched", [this] { scheduler.run(); }) {}
  ~Running() {
    scheduler.stop();
    model.release();
  }

  void submit(std::uint64_t id, std::int32_t max_new) {
    core::Request request;
    request.id = RequestId{id};
    request.prompt = {1, 2, 3, 4, 5, static_cast<core::Token>(id)};
    request.sampling.max_new_tokens = max_new;
    EXPECT_TRUE(scheduler.submit(std::move(request)).ok());
  }

  SystemClock clock;
  Metrics metrics;
  RecordingSink sink;
  ThreadedModel model;
  core::KvLayout layout{4, {{"k", "target", DType::kF32, 1, {0}}}};
  Scheduler scheduler{Options{}, Limits{200, 64, 320, {}}, layout, model, sink, nullptr, clock, metrics};
  Thread loop;
};

TEST(Scheduler, RequestsFromManyThreadsAreAllAnswered) {
  Running running;
  std::vector<std::thread> clients;
  for (std::uint64_t client = 0; client < 4; ++client)
    clients.emplace_back([&, client] {
      for (std::uint64_t i = 0; i < 10; ++i) running.submit(client * 10 + i, 8);
    });
  for (std::thread& client : clients) client.join();
  for (std::uint64_t id = 0; id < 40; ++id) EXPECT_EQ(running.sink.wait_for_finish(id).reason, FinishReason::kLength);
}

TEST(Scheduler, AbortEndsARunningRequest) {
  Running running;
  running.model.hold();
  running.submit(1, 190);
  running.model.allow(1);
  running.sink.wait_for_tokens(1, 1);
  running.scheduler.abort(RequestId{1}, {StatusCode::kAborted, "the client left"});
  const core::Finish finish = running.sink.wait_for_finish(1);
  EXPECT_EQ(finish.reason, FinishReason::kAbort);
  EXPECT_EQ(finish.status.message(), "the client left");
}

TEST(Scheduler, AuditAndInspectRunOnTheSchedulersThread) {
  Running running;
  running.submit(1, 20);
  running.sink.wait_for_finish(1);
  std::promise<Status> audited;
  running.scheduler.audit([&](const Snapshot& snapshot, Status status) {
    EXPECT_EQ(snapshot.total_pages, 64);
    audited.set_value(std::move(status));
  });
  EXPECT_TRUE(audited.get_future().get().ok());
  std::promise<Snapshot> inspected;
  running.scheduler.inspect([&](const Snapshot& snapshot) { inspected.set_value(snapshot); });
  EXPECT_EQ(inspected.get_future().get().page_size_tokens, 4);
}

TEST(Scheduler, FlushAnswersOnceTheLastPlanIsApplied) {
  Running running;
  running.submit(1, 20);
  running.sink.wait_for_finish(1);
  std::promise<Status> flushed;
  running.scheduler.flush_cache([&](Status status) { flushed.set_value(std::move(status)); });
  EXPECT_TRUE(flushed.get_future().get().ok());
}

TEST(Scheduler, StopEndsLiveRequestsAndRunReturns) {
  Running running;
  running.model.hold();
  running.submit(1, 190);
  running.model.allow(1);
  running.sink.wait_for_tokens(1, 1);
  running.scheduler.stop();
  const core::Finish finish = running.sink.wait_for_finish(1);
  EXPECT_EQ(finish.reason, FinishReason::kAbort);
  EXPECT_EQ(finish.status.code(), StatusCode::kUnavailable);
  running.model.release();
  running.loop.join();
}

TEST(Scheduler, StepDoesNothingWhenThereIsNothingToDo) {
  ManualClock clock;
  Metrics metrics;
  RecordingSink sink;
  sim::ScriptedModel model(16, 4, 320);
  const core::KvLayout layout(4, {{"k", "target", DType::kF32, 1, {0}}});
  Scheduler scheduler(Options{}, Limits{64, 16, 320, {}}, layout, model, sink, nullptr, clock, metrics);
  EXPECT_FALSE(scheduler.step());
  core::Request request;
  request.id = RequestId{1};
  request.prompt = {1, 2, 3};
  request.sampling.max_new_tokens = 1;
  EXPECT_TRUE(scheduler.submit(request).ok());
  EXPECT_TRUE(scheduler.step());
  EXPECT_FALSE(scheduler.step());  // the only token is asked for; it waits for the result
  EXPECT_TRUE(model.compute_one());
  EXPECT_TRUE(scheduler.step());
  EXPECT_EQ(sink.wait_for_finish(1).reason, FinishReason::kLength);
  EXPECT_NE(metrics.render().find("sglang:num_running_reqs 0"), std::string::npos);
}

}  // namespace
}  // namespace levada::sched
