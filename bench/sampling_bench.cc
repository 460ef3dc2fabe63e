#include "bench/sampling_bench.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/check.h"
#include "sched/sampling_batch.h"

namespace levada::bench {
namespace {

std::vector<std::unique_ptr<sched::RequestState>> requests(std::int32_t count) {
  std::vector<std::unique_ptr<sched::RequestState>> states;
  for (std::int32_t i = 0; i < count; ++i) {
    core::Request request;
    request.id = core::RequestId{static_cast<std::uint64_t>(i) + 1};
    request.prompt = {1};
    request.sampling.temperature = 0.7f;
    request.sampling.seed = static_cast<std::uint64_t>(i);
    states.push_back(
        std::make_unique<sched::RequestState>(std::move(request), kv::NamespaceRef(), sched::StopRules{}, nullptr));
  }
  return states;
}

void build(sched::SamplingBatch& batch, const std::vector<std::unique_ptr<sched::RequestState>>& states,
           std::int32_t position) {
  batch.begin();
  std::int32_t row = 0;
  for (const auto& state : states) batch.add(*state, row++, position, false);
}

// One sample is one step's batch. `changes`: the requests trade places before each.
Case batch_case(std::int32_t count, bool changes, const Sampling& sampling) {
  auto states = requests(count);
  sched::SamplingBatch batch;
  build(batch, states, 0);
  const auto* const memory = batch.rows().data();
  std::int32_t position = 0;
  const Case measured = sample_us((changes ? "build_" : "same_") + std::to_string(count) + "r", sampling,
                                  [&] {
                                    if (changes) std::rotate(states.begin(), states.begin() + 1, states.end());
                                  },
                                  [&] { build(batch, states, ++position); });
  LEVADA_CHECK(batch.rows().data() == memory, "the buffer is kept");
  return measured;
}

}  // namespace

std::vector<Case> run_sampling_bench(double scale) {
  const Sampling sampling{std::max(static_cast<std::int32_t>(20'000 * scale), 10), 100};
  return {batch_case(8, true, sampling), batch_case(200, true, sampling), batch_case(200, false, sampling)};
}

}  // namespace levada::bench
