#include "engine/worker.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>

namespace levada::engine {
namespace {

// A model of one layer whose next token is its input token + 1; chosen steps fail.
class CountingModel final : public model::Model {
 public:
  struct Pool final : model::KvPool {
    const core::KvLayout& layout() const override { return layout_; }
    std::int32_t pages() const override { return 1; }
    device::TensorView plane(int, int) const override { return {}; }
    void poison(std::int32_t) override {}
    core::KvLayout layout_{1, {core::KvPlane{"k", "target", DType::kF32, 1, {0}}}};
  };
  class Step final : public model::Forward {
   public:
    Step(CountingModel& owner, const core::StepPlan& plan) : owner_(owner), plan_(plan) {}
    Status layer(int) override {
      if (core::value(plan_.step) == owner_.fails) return internal_error("a broken layer");
      if (core::value(plan_.step) == owner_.throws) throw std::runtime_error("a broken kernel");
      return {};
    }
    Status all_layers() override { return layer(0); }
    device::TensorView hidden() const override { return {}; }
    Result<model::DeviceRows> device_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
      LEVADA_ASSIGN_OR_RETURN(const device::TensorView rows, host_rows(first, count, final_norm));
      return model::DeviceRows{rows, owner_.stream.get()};
    }
    Result<device::TensorView> host_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
      owner_.on_read({first, count, final_norm});
      return device::TensorView::of(nullptr, DType::kF32, {count, 1});
    }
    Result<device::TensorView> logits(std::span<const std::int32_t>) override { return device::TensorView{}; }
    Result<std::unique_ptr<model::SampledTokens>> sample() override {
      std::vector<core::Token> tokens;
      for (const core::SampleRow& sample : plan_.samples) {
        tokens.push_back(plan_.tokens[static_cast<std::size_t>(sample.row)] + 1);
      }
      return model::ready_tokens({std::move(tokens), {}});
    }

   private:
    CountingModel& owner_;
    const core::StepPlan& plan_;
  };

  CountingModel() { info_.num_layers = 1; }
  const core::ModelInfo& info() const override { return info_; }
  const device::Device& device() const override { return *owned_device; }
  const core::KvLayout& kv_layout() const override { return pool_.layout_; }
  Result<std::unique_ptr<model::KvPool>> make_kv_pool(std::int32_t) override {
    return std::unique_ptr<model::KvPool>(std::make_unique<Pool>());
  }
  Result<std::shared_ptr<const model::Draft>> load_draft(const std::filesystem::path&) override {
    return unavailable("it counts without");
  }
  Result<std::unique_ptr<model::Forward>> begin(const core::StepPlan& plan, model::KvPool&,
                                                const std::shared_ptr<const model::Draft>&) override {
    return std::unique_ptr<model::Forward>(std::make_unique<Step>(*this, plan));
  }
  bool runs_ahead() const override { return false; }
  Status health() const override { return kept_error; }
  std::vector<model::MemoryUse> memory() const override { return {}; }
  std::string backend() const override { return "counting"; }

  std::uint64_t fails = ~0ull, throws = ~0ull;
  Status kept_error;
  struct Read {
    std::int32_t first, count;
    bool final_norm;
  };
  std::function<void(const Read&)> on_read = [](const Read&) {};
  std::unique_ptr<device::Device> owned_device = device::open_device(device::DeviceKind::kCpu).value();
  std::unique_ptr<device::Stream> stream = owned_device->make_stream().value();

 private:
  core::ModelInfo info_;
  Pool pool_;
};

// A worker over the counting model, and the results it has given.
class WorkerTest : public testing::Test {
 protected:
  void start() {
    auto pool = std::move(model->make_kv_pool(1)).value();
    worker = std::make_unique<Worker>(std::move(owned), std::move(pool));
    worker->set_result_sink([this](core::StepResult result) {
      std::lock_guard lock(mutex);
      results.push_back(std::move(result));
    });
  }
  // One row: a known token, or the one sampled by the plan before.
  void submit(std::uint64_t step, core::Token token, bool future = false, bool sample = true) {
    auto plan = std::make_unique<core::StepPlan>();
    plan->step = core::StepId{step};
    plan->tokens = {token};
    plan->positions = {0};
    if (future) plan->future_tokens = {{0, 0}};
    if (sample) plan->samples.emplace_back();
    worker->submit(std::move(plan));
  }
  std::vector<core::StepResult> finish() {
    worker.reset();  // finishes what was submitted
    return std::move(results);
  }

  std::unique_ptr<CountingModel> owned = std::make_unique<CountingModel>();
  CountingModel* model = owned.get();
  std::unique_ptr<Worker> worker;
  std::mutex mutex;
  std::vector<core::StepResult> results;
};

TEST_F(WorkerTest, GivesOneResultPerPlanInOrder) {
  start();
  for (std::uint64_t step = 0; step < 50; ++step) submit(step, static_cast<core::Token>(step));
  const auto all = finish();
  ASSERT_EQ(all.size(), 50u);
  for (std::uint64_t step = 0; step < 50; ++step) {
    EXPECT_EQ(core::value(all[step].step), step);
    EXPECT_TRUE(all[step].status.ok());
    EXPECT_EQ(all[step].sampled, std::vector<core::Token>{static_cast<core::Token>(step) + 1});
  }
}

TEST_F(WorkerTest, AFutureTokenIsTheOneSampledByThePlanBefore) {
  start();
  submit(0, 10);
  submit(1, -1, true);  // 11
  submit(2, -1, true);  // 12
  EXPECT_EQ(finish().back().sampled, std::vector<core::Token>{13});
}

TEST_F(WorkerTest, APlanWithoutSamplesGivesNone) {
  start();
  submit(0, 10, false, false);
  const auto all = finish();
  EXPECT_TRUE(all.front().status.ok());
  EXPECT_TRUE(all.front().sampled.empty());
}

TEST_F(WorkerTest, AFailedStepIsAFailedResultAndTheNextPlanRuns) {
  model->fails = 1;
  start();
  submit(0, 10);
  submit(1, 20);
  submit(2, 30);
  const auto all = finish();
  EXPECT_EQ(all[1].status.message(), "a broken layer");
  EXPECT_FALSE(all[1].executor_lost);
  EXPECT_TRUE(all[1].sampled.empty());
  EXPECT_EQ(all[2].sampled, std::vector<core::Token>{31});
}

TEST_F(WorkerTest, AFailedStepOnADeviceThatKeepsItsErrorSaysThatTheExecutorIsLost) {
  model->fails = 1;
  model->kept_error = internal_error("CUDA: an illegal memory access was encountered");
  start();
  submit(0, 10);
  submit(1, 20);
  const auto all = finish();
  EXPECT_TRUE(all[0].status.ok());
  EXPECT_FALSE(all[0].executor_lost);
  EXPECT_TRUE(all[1].executor_lost);
  EXPECT_EQ(all[1].status.message(), "the device is lost: CUDA: an illegal memory access was encountered");
}

TEST_F(WorkerTest, AnExceptionIsAFailedResult) {
  model->throws = 0;
  start();
  submit(0, 10);
  const auto all = finish();
  EXPECT_EQ(all.front().status.code(), StatusCode::kInternal);
  EXPECT_NE(all.front().status.message().find("a broken kernel"), std::string::npos);
}

TEST_F(WorkerTest, AStepThatContinuesAFailedOneFailsToo) {
  model->fails = 0;
  start();
  submit(0, 10);
  submit(1, -1, true);
  EXPECT_EQ(finish().back().status.code(), StatusCode::kInternal);
}

// Keeps what it was given.
struct Rows final : capture::RowSink {
  explicit Rows(bool takes) : takes_device_rows(takes) {}
  bool takes_rows_of(const device::Device&) const override { return takes_device_rows; }
  void on_device_rows(std::int32_t state, std::span<const capture::CapturedRows> captured,
                      device::Stream& by) override {
    for (const capture::CapturedRows& one : captured) on_rows(one.id, one.range, state, one.rows);
    stream = &by;
  }
  void on_rows(core::CaptureId id, const core::TokenRange& range, std::int32_t state,
               const device::TensorView& rows) override {
    EXPECT_EQ(id, core::CaptureId{9});
    EXPECT_EQ(rows.shape[0], range.count);
    seen.emplace_back(state, range.first);
  }
  const bool takes_device_rows;
  std::vector<std::pair<std::int32_t, std::int32_t>> seen;  // state, first token
  device::Stream* stream = nullptr;                         // that computes the last ones, if they came from the device
};

// Through the host, or from where the device computed them.
class WorkerCaptureTest : public WorkerTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Sinks, WorkerCaptureTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "device" : "host"; });

TEST_P(WorkerCaptureTest, TheRowsAPlanWantsCapturedGoToTheSinkWithTheirRange) {
  Rows sink(GetParam());
  device::Stream* const stream = model->stream.get();
  worker = std::make_unique<Worker>(std::move(owned), std::move(model->make_kv_pool(1)).value(), &sink);
  worker->set_result_sink([](const core::StepResult&) {});
  auto plan = std::make_unique<core::StepPlan>();
  plan->tokens = {1, 2, 3};
  plan->positions = {0, 4, 5};
  plan->slices = {{.range = {{}, 0, 1}, .first_row = 0}, {.range = {{}, 4, 2}, .first_row = 1}};
  plan->capture_layers = {0};
  plan->captures = {{.slice = 1, .id = core::CaptureId{9}, .layers_first = 0, .layers_count = 1, .final_norm = true}};
  std::vector<CountingModel::Read> reads;
  model->on_read = [&](const CountingModel::Read& read) { reads.push_back(read); };
  worker->submit(std::move(plan));
  worker.reset();
  EXPECT_EQ(sink.seen, (std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 4}, {capture::kFinalNorm, 4}}));
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[0].first, 1);
  EXPECT_EQ(reads[0].count, 2);
  EXPECT_FALSE(reads[0].final_norm);
  EXPECT_TRUE(reads[1].final_norm);
  EXPECT_EQ(sink.stream, GetParam() ? stream : nullptr);
}

TEST_F(WorkerTest, AWorkerThatNeverRanEndsQuietly) {
  auto pool = std::move(model->make_kv_pool(1)).value();
  Worker idle(std::move(owned), std::move(pool));
  EXPECT_EQ(idle.model().backend(), "counting");
  EXPECT_EQ(idle.pool().pages(), 1);
}

}  // namespace
}  // namespace levada::engine
