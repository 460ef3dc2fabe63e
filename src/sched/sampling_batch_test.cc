#include "sched/sampling_batch.h"

#include <gtest/gtest.h>

#include <memory>

namespace levada::sched {
namespace {

std::unique_ptr<RequestState> state_of(std::uint64_t id, float temperature) {
  core::Request request;
  request.id = core::RequestId{id};
  request.prompt = {1};
  request.sampling.temperature = temperature;
  request.sampling.seed = id * 10;
  return std::make_unique<RequestState>(std::move(request), kv::NamespaceRef(), StopRules{}, nullptr);
}

TEST(SamplingBatch, EachRowIsItsRequestsWhoeverHadItBefore) {
  const auto a = state_of(1, 0.5f), b = state_of(2, 0.7f);
  SamplingBatch batch;
  batch.begin();
  batch.add(*a, 0, 10, false);
  batch.add(*b, 1, 20, false);
  batch.begin();
  batch.add(*b, 0, 21, false);
  ASSERT_EQ(batch.rows().size(), 1u);
  EXPECT_EQ(batch.rows()[0].temperature, 0.7f);
  EXPECT_EQ(batch.rows()[0].seed, 20u);
  EXPECT_EQ(batch.rows()[0].position, 21);
}

TEST(SamplingBatch, WhatTheCallerWroteIntoARowIsGoneInTheNextStep) {
  const auto a = state_of(1, 0.5f);
  SamplingBatch batch;
  batch.begin();
  batch.add(*a, 0, 1, true).banned_count = 3;
  batch.begin();
  EXPECT_EQ(batch.add(*a, 0, 2, false).banned_count, 0);
}

TEST(SamplingBatch, StepsOfOneBatchUseOneBuffer) {
  std::vector<std::unique_ptr<RequestState>> states;
  for (std::uint64_t id = 1; id <= 200; ++id) states.push_back(state_of(id, 1));
  SamplingBatch batch;
  const core::SampleRow* memory = nullptr;
  for (std::int32_t step = 0; step < 3; ++step) {
    batch.begin();
    for (std::int32_t i = 0; i < 200; ++i) batch.add(*states[static_cast<std::size_t>(i)], i, step, false);
    if (step > 0) {
      EXPECT_EQ(batch.rows().data(), memory);
    }
    memory = batch.rows().data();
  }
}

}  // namespace
}  // namespace levada::sched
