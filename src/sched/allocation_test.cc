// What a step of a running batch takes from the heap. Sanitizers have an operator new of their own: there nothing is counted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "sched/brain.h"
#include "sched/sim/scripted_model.h"
#include "support/instrumented.h"

namespace {

thread_local std::int64_t allocations = 0;

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace levada::sched {
namespace {

constexpr std::int32_t kRequests = 200;

core::Request request_of(std::int32_t number) {
  core::Request request;
  request.id = core::RequestId{static_cast<std::uint64_t>(number) + 1};
  request.prompt = {3, number};
  request.sampling.temperature = 0.7f;
  request.sampling.seed = static_cast<std::uint64_t>(number);
  request.sampling.max_new_tokens = 100;
  request.sampling.ignore_eos = true;
  return request;
}

template <class Body>
std::int64_t allocations_of(Body body) {
  const std::int64_t before = allocations;
  body();
  return allocations - before;
}

TEST(Allocations, ASamplingBatchOfASizeThatWasThereBeforeTakesNone) {
  std::vector<std::unique_ptr<RequestState>> states;
  for (std::int32_t i = 0; i < kRequests; ++i)
    states.push_back(std::make_unique<RequestState>(request_of(i), kv::NamespaceRef(), StopRules{}, nullptr));
  SamplingBatch batch;
  const auto build = [&](std::int32_t turned_by) {
    batch.begin();
    for (std::int32_t i = 0; i < kRequests; ++i)
      batch.add(*states[static_cast<std::size_t>((i + turned_by) % kRequests)], i, turned_by, false);
  };
  build(0);
  EXPECT_EQ(allocations_of([&] { build(0); }), 0) << "the batch did not change";
  EXPECT_EQ(allocations_of([&] { build(1); }), 0) << "every row has another request";
}

// The plan leaves for the executor and the deltas for the clients, with what they hold; nothing else is taken, however long
// the contexts are.
TEST(Allocations, AStepTakesThePlansArraysAndATokenListPerAnswer) {
  if (test::kInstrumented) GTEST_SKIP() << "nothing is counted";
  const core::KvLayout layout(64, {core::KvPlane{"k", "target", DType::kF32, 1, {0}}});
  Options options;
  options.max_running_requests = kRequests;
  options.chunked_prefill_size = -1;
  options.speculative_algorithm = "none";  // what n-grams remember grows with the text
  ManualClock clock;
  Metrics metrics;
  Brain brain(options, {4096, kRequests * 4, 1000, {2}}, layout, nullptr, clock, metrics);
  sim::ScriptedModel model(kRequests * 4, 64, 1000);
  std::int64_t applied = 0;
  model.set_result_sink([&](core::StepResult result) { applied += allocations_of([&] { brain.apply(result); }); });
  for (std::int32_t i = 0; i < kRequests; ++i) brain.submit(request_of(i));
  std::int64_t planned = 0;
  constexpr std::int32_t kWarmup = 8, kSteps = 40;  // no request fills its page
  for (std::int32_t step = -kWarmup; step < kSteps; ++step) {
    if (step == 0) planned = applied = 0;
    std::unique_ptr<core::StepPlan> plan;
    planned += allocations_of([&] { plan = brain.next_plan(); });
    if (plan) model.submit(std::move(plan));
    if (step > -kWarmup) model.compute_one();
    brain.take_deltas();
  }
  EXPECT_LE(planned, kSteps * 9);
  EXPECT_LE(applied, kSteps * (kRequests + 2));
  std::printf("%.2f allocations a plan, %.2f a result of %d rows\n", static_cast<double>(planned) / kSteps,
              static_cast<double>(applied) / kSteps, kRequests);
  brain.abort_all({StatusCode::kAborted, "over"});
  while (model.compute_one()) {
  }
}

}  // namespace
}  // namespace levada::sched
