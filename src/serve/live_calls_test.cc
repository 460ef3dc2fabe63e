#include "serve/live_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace levada::serve {
namespace {

using ::testing::HasSubstr;

class NoExecutor final : public core::StepExecutor {
 public:
  void submit(std::unique_ptr<core::StepPlan>) override {}
  void set_result_sink(std::function<void(core::StepResult)>) override {}
};

class NoSink final : public core::OutputSink {
 public:
  void on_outputs(std::vector<core::OutputDelta>) override {}
};

// The scheduler only takes what is submitted: the tests say what its deltas are. Requests are numbered from 1.
class LiveCallsTest : public ::testing::Test {
 protected:
  static core::KvLayout layout() {
    core::KvPlane plane;
    plane.name = "k";
    plane.elements_per_token = 1;
    plane.layers = {0};
    return core::KvLayout(1, {plane});
  }
  static CallSpec call() {
    CallSpec call;
    call.dialect = Dialect::kGenerate;
    call.stream = true;
    core::Request request;
    request.prompt = {1};
    call.members.push_back({std::move(request), ""});
    return call;
  }
  static core::OutputDelta delta(std::uint64_t request, std::vector<core::Token> tokens) {
    core::OutputDelta delta;
    delta.request = core::RequestId{request};
    delta.token_ids = std::move(tokens);
    return delta;
  }

  ManualClock clock_;
  Metrics metrics_;
  NoExecutor executor_;
  NoSink sink_;
  sched::Scheduler scheduler_{sched::Options{}, {64, 64, 100, {}}, layout(), executor_, sink_, nullptr,
                              clock_,           metrics_};
  RequestMetrics request_metrics_{metrics_};
  LiveCalls calls_{scheduler_, clock_, request_metrics_, [] { return std::int64_t{0}; }};
};

TEST_F(LiveCallsTest, OneReceiverThatThrowsEndsItsOwnCallAlone) {
  std::vector<Emission> thrower, other;
  const CallId bad = calls_.start(call(), [&](Emission emission) {
    thrower.push_back(std::move(emission));
    if (thrower.size() == 1) throw std::runtime_error("no luck");
  });
  const CallId good = calls_.start(call(), [&](Emission emission) { other.push_back(std::move(emission)); });
  calls_.on_outputs({delta(1, {5}), delta(2, {6}), delta(1, {7})});
  EXPECT_EQ(other.size(), 1u);
  EXPECT_TRUE(calls_.is_live(good));
  EXPECT_FALSE(calls_.is_live(bad));
  ASSERT_EQ(thrower.size(), 2u);
  EXPECT_TRUE(thrower[1].end);
  EXPECT_THAT(thrower[1].bytes, HasSubstr("internal_server_error"));
}

TEST_F(LiveCallsTest, AStoppedSchedulerEndsTheCallAtOnceAndItsRidIsFree) {
  scheduler_.stop();
  scheduler_.run();
  for (int i = 0; i < 2; ++i) {
    CallSpec spec = call();
    spec.members.push_back(spec.members[0]);
    spec.members[0].rid = "again";
    std::vector<Emission> emissions;
    calls_.start(std::move(spec), [&](Emission emission) { emissions.push_back(std::move(emission)); });
    ASSERT_EQ(emissions.size(), 1u);
    EXPECT_EQ(emissions[0].status, 503);
    EXPECT_TRUE(emissions[0].end);
    EXPECT_THAT(emissions[0].bytes, HasSubstr("the server is shutting down"));
    EXPECT_EQ(calls_.size(), 0u);
  }
}

TEST_F(LiveCallsTest, OnlyTokensAreASignOfLife) {
  calls_.start(call(), [](const Emission&) {});
  calls_.start(call(), [](const Emission&) {});
  clock_.advance_us(1000);
  core::OutputDelta refusal = delta(1, {});
  refusal.finish = core::Finish{core::FinishReason::kError, {}, resource_exhausted("full")};
  calls_.on_outputs({refusal});
  EXPECT_EQ(calls_.last_output_us(), 0);
  calls_.on_outputs({delta(2, {5})});
  EXPECT_EQ(calls_.last_output_us(), 1000);
}

}  // namespace
}  // namespace levada::serve
