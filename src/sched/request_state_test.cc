#include "sched/request_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada::sched {
namespace {

using testing::HasSubstr;

constexpr std::int32_t kPageSize = 4;

RequestState request(std::uint64_t id) {
  core::Request request;
  request.id = core::RequestId{id};
  request.prompt = {1, 2, 3, 4, 5};
  return {std::move(request), kv::NamespaceRef(), StopRules{}, nullptr};
}

TEST(RequestState, AFreshRequestHoldsNothingAndIsSound) { EXPECT_TRUE(request(1).verify(kPageSize).ok()); }

// An audit asks a live server: what is broken is an answer, not the end of the process.
TEST(RequestState, ABrokenInvariantIsNamedWithItsRequest) {
  RequestState state = request(7);
  state.computed_tokens = 3;
  const Status lengths = state.verify(kPageSize);
  EXPECT_EQ(lengths.code(), StatusCode::kInternal);
  EXPECT_THAT(lengths.message(), HasSubstr("request 7"));
  EXPECT_THAT(lengths.message(), HasSubstr("what is computed was planned"));

  state.planned_tokens = 3;
  EXPECT_THAT(state.verify(kPageSize).message(), HasSubstr("every planned token has its page"));
}

// Bigram i is (token i, token i + 1): so many are known as have their next token.
TEST(RequestState, AKeyByBigramsTakesTheTokenBehindItsLastOne) {
  const RequestState state = request(1);
  EXPECT_EQ(state.key(4, false).size(), 4);
  EXPECT_EQ(state.key(5, false).size(), 5);
  EXPECT_EQ(state.key(4, true).size(), 4);
  EXPECT_EQ(state.key(4, true).tokens().size(), 5u);
  EXPECT_EQ(state.key(5, true).size(), 4) << "what follows the last token is not known";
  EXPECT_TRUE(state.key(5, true).bigram());
}

TEST(RequestState, EachPhaseHasItsOwnInvariant) {
  RequestState state = request(1);
  state.plans_in_flight = 1;
  EXPECT_THAT(state.verify(kPageSize).message(), HasSubstr("a waiting request holds nothing"));
  state.phase = Phase::kPrefilling;
  EXPECT_THAT(state.verify(kPageSize).message(), HasSubstr("a chunk is missing"));
  state.phase = Phase::kRunning;
  EXPECT_TRUE(state.verify(kPageSize).ok());
  state.input_tokens = 5;
  EXPECT_THAT(state.verify(kPageSize).message(), HasSubstr("its whole input is planned"));
  state.phase = Phase::kDraining;
  EXPECT_TRUE(state.verify(kPageSize).ok());
  state.plans_in_flight = 0;
  EXPECT_THAT(state.verify(kPageSize).message(), HasSubstr("it waits for a plan"));
}

}  // namespace
}  // namespace levada::sched
