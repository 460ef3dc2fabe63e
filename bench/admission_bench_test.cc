#include "bench/admission_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace levada::bench {
namespace {

AdmissionSetup setup_of(std::int32_t pages, std::int64_t chunk) {
  AdmissionSetup setup;
  setup.pages = pages;
  setup.chunk_tokens = chunk;
  return setup;
}

TEST(AdmissionBench, ARoundStopsWhereThePagesEndAndGoesOnWhenAnAnswerEnds) {
  // 10 pages; each needs 160 tokens of input and output.  |xxxxxxxxxx| then, ten rounds later, |xxxxxxxxxx|
  const auto rounds = run_admission({{0, 150, 10}, {0, 150, 10}}, setup_of(10, 0)).value();
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].stop, "no_token");
  EXPECT_EQ(rounds[0].waiting, 1u);
  EXPECT_EQ(rounds[1].admitted.front().request, 1u);
  EXPECT_EQ(rounds[1].stop, "no_token") << "the pool is full to the last page again";
}

TEST(AdmissionBench, AChunkEndsTheRoundAndTheNextGoesOnWithIt) {
  const auto rounds = run_admission({{64, 100, 1}, {0, 16, 1}}, setup_of(100, 64)).value();
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].extend_tokens, 64);
  EXPECT_EQ(rounds[0].cached_tokens, 64);
  EXPECT_FALSE(rounds[0].admitted.front().whole);
  EXPECT_EQ(rounds[0].stop, "other");
  EXPECT_EQ(rounds[1].admitted.size(), 2u);
  EXPECT_EQ(rounds[1].stop, "other") << "36 tokens are charged as three pages, 16 as one: the chunk is used up";
}

TEST(AdmissionBench, WhatCouldNeverRunIsRefusedByName) {
  const auto refused = run_admission({{0, 10, 1}, {0, 1000, 1}}, setup_of(10, 0));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("request 1 needs 63 pages, there are 10"), std::string::npos);
}

TEST(AdmissionBench, LinesAreReadStrictly) {
  EXPECT_EQ(read_admission_inputs("{\"cached\":16,\"extend\":5,\"max_new\":7,\"l2_hit\":0}\n\n").value().size(), 1u);
  for (const char* bad : {"[]", "{\"extend\":-1}", "{\"extend\":1e3}", "{\"extend\":99999999999}",
                          "{\"extend\":1,\"x\":1}", "{\"extend\":1,\"l2_hit\":5}", "{\"cached\":1}"}) {
    EXPECT_FALSE(read_admission_inputs(bad).ok()) << bad;
  }
}

TEST(AdmissionBench, EveryRequestOfTheMixIsAdmittedWholeOnce) {
  const auto inputs = mixed_admission_inputs(300);
  std::vector<int> whole(inputs.size());
  std::int64_t extend = 0;
  const std::vector<AdmissionRound> rounds = run_admission(inputs, setup_of(2048, 512)).value();
  for (const AdmissionRound& round : rounds) {
    extend += round.extend_tokens;
    EXPECT_LE(round.pages, 2048);
    for (const auto& part : round.admitted) whole[part.request] += part.whole ? 1 : 0;
    EXPECT_EQ(nlohmann::json::parse(admission_json(0, round)).at("requests"), round.admitted.size());
  }
  EXPECT_EQ(whole, std::vector<int>(inputs.size(), 1));
  std::int64_t asked = 0;
  for (const AdmissionInput& input : inputs) asked += input.extend_tokens;
  EXPECT_EQ(extend, asked);
}

}  // namespace
}  // namespace levada::bench
