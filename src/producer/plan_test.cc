// Ids, order and digests; the expected values are those of Python's hashlib and json over the documented text.
#include "producer/plan.h"

#include <gtest/gtest.h>

namespace levada::producer {
namespace {

PreparedSample named(const std::string& id, std::size_t tokens = 2) {
  return {id, std::vector<std::int32_t>(tokens, 1), std::vector<std::uint8_t>(tokens, 1)};
}

TEST(PlanTest, P2AnIdIsTheHashOfTheContent) {
  EXPECT_EQ(content_id({"", {1, 2}, {0, 1}}),
            "canonical-prompt-34bd253a71eb7b58ce5b89a2612392d7ef0018b4de9b412171197a502f84d469");
  EXPECT_EQ(content_id({"ignored", {7}, {1}}),
            "canonical-prompt-e76128e1fe207145dd7b9982c01a59a021482c94dc96050a9090df121a103ea5");
}

TEST(PlanTest, I31AnIdDoesNotDependOnWhatStandsAround) {
  const PreparedSample sample{"", {1, 2, 3}, {0, 1, 1}};
  const std::vector<PreparedSample> alone = {sample};
  const std::vector<PreparedSample> behind = {named("x"), named("y"), sample};
  EXPECT_EQ(make_plan(alone, {"run"})->task_ids[0], make_plan(behind, {"run"})->task_ids[2]);
}

TEST(PlanTest, P2TheKthRepeatIsNumbered) {
  const PreparedSample sample{"", {1, 2}, {0, 1}};
  const std::vector<PreparedSample> samples = {sample, sample, named("x"), sample};
  const auto plan = make_plan(samples, {"run"});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->task_ids[1], plan->task_ids[0] + "-1");
  EXPECT_EQ(plan->task_ids[3], plan->task_ids[0] + "-2");
}

TEST(PlanTest, I32TwoSamplesWithOneIdAreRefused) {
  const std::vector<PreparedSample> samples = {named("x"), named("x")};
  EXPECT_EQ(make_plan(samples, {"run"}).status().field(), "task_id");
  EXPECT_EQ(make_plan({}, {"run"}).status().field(), "prompts");
}

TEST(PlanTest, P1OneEpochKeepsTheFilesOrder) {
  const std::vector<PreparedSample> samples = {named("x", 2), named("y", 3)};
  const auto plan = make_plan(samples, {"run", 1, 42});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->sources[0].sample_id, "run:x");
  EXPECT_EQ(plan->sources[1].sample_id, "run:y");
  EXPECT_EQ(plan->sources[1].ntokens, 3);
  EXPECT_EQ(plan->source_digest, "41bb3e820f6b56ceec002cd272ccf4d1e63b16cca0b769f22d4e338f7b7f17d7");
}

TEST(PlanTest, P1P5EachEpochHasItsOwnOrderAndMark) {
  std::vector<PreparedSample> samples;
  for (const char* id : {"a", "b", "c", "d", "e"}) samples.push_back(named(id));
  const auto plan = make_plan(samples, {"run", 2, 42});
  ASSERT_TRUE(plan.ok());
  std::string order;
  for (const fanout::Source& source : plan->sources) order += source.sample_id + " ";
  EXPECT_EQ(order, "run:a run:c run:b run:d run:e run:e:e1 run:c:e1 run:d:e1 run:b:e1 run:a:e1 ");
  EXPECT_EQ(plan->samples[0], &samples[0]);
}

TEST(PlanTest, P4TheContractsDigestTellsEveryFieldApart) {
  const CaptureContract contract{"store", {1, 2}, 4, DType::kBF16};
  const ContractIdentity identity{"model", "tokenizer", 64};
  const std::string digest = contract_digest(contract, identity);
  EXPECT_EQ(digest, contract_digest(contract, identity));
  EXPECT_NE(digest, contract_digest({"store", {2, 1}, 4, DType::kBF16}, identity));
  EXPECT_NE(digest, contract_digest({"store", {1, 2}, 8, DType::kBF16}, identity));
  EXPECT_NE(digest, contract_digest({"store", {1, 2}, 4, DType::kF32}, identity));
  EXPECT_NE(digest, contract_digest(contract, {"other", "tokenizer", 64}));
  EXPECT_NE(digest, contract_digest(contract, {"model", "other", 64}));
  EXPECT_NE(digest, contract_digest(contract, {"model", "tokenizer", 65}));
}

}  // namespace
}  // namespace levada::producer
