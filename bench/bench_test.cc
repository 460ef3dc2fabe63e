#include "bench/bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/http_bench.h"
#include "bench/radix_bench.h"
#include "bench/registry_bench.h"
#include "bench/store_bench.h"

namespace levada::bench {
namespace {

TEST(Bench, MedianAndP99OfDurationsAndRates) {
  std::vector<double> samples;
  for (int at = 100; at >= 0; --at) samples.push_back(at);
  const Case durations = summarize_us("step", samples);
  EXPECT_EQ(durations.median, 50);
  EXPECT_EQ(durations.p99, 99);
  EXPECT_EQ(durations.unit, "us");
  EXPECT_EQ(durations.n, 101);
  EXPECT_EQ(summarize_rates("copy", samples, "GB/s").p99, 1) << "the worse end of a rate is the low one";
}

TEST(Bench, SampleTimesTheBodyOnlyAndDropsTheWarmup) {
  int prepared = 0, run = 0;
  const Case item = sample_us(
      "x", {.samples = 5, .warmup = 2}, [&] { ++prepared; }, [&] { ++run; });
  EXPECT_EQ(prepared, 7);
  EXPECT_EQ(run, 7);
  EXPECT_EQ(item.n, 5);
}

TEST(Bench, JsonHasTheFieldsOfTheRepoContract) {
  const std::vector<Case> cases = {{"step_64r", 12.34567, 20, "us", 7}};
  const auto document = nlohmann::json::parse(to_json("sched", "abc123", cases));
  EXPECT_EQ(document.at("bench"), "sched");
  EXPECT_EQ(document.at("commit"), "abc123");
  EXPECT_FALSE(document.at("machine").get<std::string>().empty());
  const auto& item = document.at("cases").at(0);
  EXPECT_EQ(item.at("name"), "step_64r");
  EXPECT_NEAR(item.at("median").get<double>(), 12.35, 1e-9);
  EXPECT_EQ(item.at("p99"), 20);
  EXPECT_EQ(item.at("unit"), "us");
  EXPECT_EQ(item.at("n"), 7);
}

TEST(RadixBench, HasTheCasesOfTheRepoContract) {
  std::set<std::string> names;
  for (const Case& item : run_radix_bench(0.001)) EXPECT_TRUE(names.insert(item.name).second) << item.name;
  for (const std::string name : {"match_64k_16n", "match_64k_128n", "reinsert_64k_128n", "match_1k_10kleaves",
                                 "insert_64k_fresh", "evict_1_of_10k", "evict_10k", "bigram_match_64k_128n"}) {
    EXPECT_TRUE(names.contains(name + "_p1") && names.contains(name + "_p64")) << name;
  }
}

TEST(HttpBench, MeasuresTransportAndWholeServerBesideBareEpoll) {
  const auto tokenizer =
      text::Tokenizer::from_json(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama/tokenizer.json").value();
  const auto chat_template = text::ChatTemplate::parse(tokenizer->chat_template()).value();
  const Result<std::vector<Case>> cases = run_http_bench(0.001, *tokenizer, *chat_template);
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  std::set<std::string> names;
  for (const Case& item : *cases) {
    EXPECT_GT(item.median, 0) << item.name;
    names.insert(item.name);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"epoll_hello", "hello", "health", "epoll_sse", "epoll_sse_turns", "sse",
                                   "epoll_sse_x8", "sse_x8", "chat_first_token", "chat_event", "chat_event_io"}));
}

TEST(StoreBench, MeasuresTcpAndSharedMemoryBesideTheirLimits) {
  const Result<std::vector<Case>> cases = run_store_bench(0.001);
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  std::set<std::string> names;
  for (const Case& item : *cases) {
    EXPECT_GT(item.median, 0) << item.name;
    names.insert(item.name);
  }
  for (const std::string name : {"raw_tcp_", "tcp_put_", "tcp_get_", "memcpy_nt_", "shm_put_", "shm_put_hashed_"}) {
    EXPECT_TRUE(names.contains(name + "4k") && names.contains(name + "1m")) << name;
  }
  EXPECT_TRUE(names.contains("shm_handoff") && names.contains("tcp_put_1m_cpu") && names.contains("tcp_get_1m_cpu"));
}

TEST(RegistryBench, MeasuresTransitionsAndAcquiresBesideTheDisk) {
  const Result<std::vector<Case>> cases = run_registry_bench(0.004);
  ASSERT_TRUE(cases.ok()) << cases.status().to_string();
  std::set<std::string> names;
  for (const Case& item : *cases) {
    EXPECT_GT(item.median, 0) << item.name;
    names.insert(item.name);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"durable_transitions", "acquire_8_waiting", "one_durable_call", "fdatasync_4k"}));
}

}  // namespace
}  // namespace levada::bench
