// `levada bench serving` over a server of a few scripted answers: what it counts, what it calls a failure, what it draws.
#include "bench/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/metrics.h"
#include "base/thread.h"
#include "bench/percentile_chart.h"
#include "http/server.h"
#include "support/temporary_folder.h"

namespace levada::bench {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// Streams two pieces of text and a usage; every third request is refused.
class Scripted : public testing::Test {
 protected:
  Scripted() : server_(http::Server::listen({.port = 0}, metrics_).value()) {
    server_->route("POST", "/v1/chat/completions", [this](http::Request request, http::Responder out) {
      const Json body = Json::parse(request.body);
      EXPECT_EQ(body["max_tokens"], 5);
      if (refuse_thirds_ && ++count_ % 3 == 0) return out.respond(429, "application/json", "{\"error\":\"busy\"}");
      out.start_stream(200, "text/event-stream");
      out.write("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n");
      out.write("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"con");
      out.write("tent\":\"b\"}}]}\n\n");
      out.write("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n");
      out.end();
    });
    thread_ = Thread("server", [this] { server_->run(); });
    options_.url = "http://127.0.0.1:" + std::to_string(server_->port());
    options_.output_tokens = 5;
    options_.requests = 12;
    options_.concurrency = 4;
  }
  ~Scripted() override {
    server_->stop(std::chrono::milliseconds(0));
    thread_.join();
  }

  Metrics metrics_;
  std::unique_ptr<http::Server> server_;
  std::atomic<int> count_{0};
  bool refuse_thirds_ = false;
  LoadOptions options_;
  Thread thread_;
};

TEST_F(Scripted, CountsTokensAndTimesOfWhatWentWell) {
  const auto result = run_load(options_);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const Json json = Json::parse(load_json(options_, *result));
  EXPECT_EQ(json["completed"], 12);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["prompt_tokens"], 84);
  EXPECT_EQ(json["output_tokens"], 60);
  EXPECT_GT(json["ttft_ms"]["p99"], 0.0);
  const auto series = latencies(*result);
  EXPECT_EQ(series.at("itl").size(), 12u) << "two pieces of text have one gap";
  EXPECT_EQ(series.at("e2e").size(), 12u);
}

TEST_F(Scripted, AFailureIsCountedWithItsReasonAndInNoPercentile) {
  refuse_thirds_ = true;
  const auto result = run_load(options_);
  const Json json = Json::parse(load_json(options_, *result));
  EXPECT_EQ(json["completed"], 8);
  EXPECT_EQ(json["failed"], 4);
  EXPECT_THAT(json["failures"].begin().key(), HasSubstr("HTTP 429"));
  EXPECT_EQ(latencies(*result).at("ttft").size(), 8u);
}

TEST_F(Scripted, AServerThatIsNotThereFailsEveryRequest) {
  options_.url = "http://127.0.0.1:1";
  const auto result = run_load(options_);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Json::parse(load_json(options_, *result))["failed"], 12);
}

TEST(LoadOptions, WhatCannotBeIsRefusedByName) {
  LoadOptions options;
  options.dataset = "lorem";
  EXPECT_EQ(run_load(options).status().field(), "dataset");
  options.dataset = "random";
  options.endpoint = "embeddings";
  EXPECT_EQ(run_load(options).status().field(), "endpoint");
}

TEST(Prompts, SharedPrefixesAreSharedAndTheSeedDecides) {
  LoadOptions options;
  options.dataset = "shared-prefix";
  options.groups = 2;
  options.requests = 4;
  options.prefix_words = 30;
  options.input_words = 3;
  const auto prompts = make_prompts(options);
  EXPECT_EQ(prompts, make_prompts(options));
  const auto common = [&](std::size_t a, std::size_t b) {
    return std::mismatch(prompts[a].begin(), prompts[a].end(), prompts[b].begin(), prompts[b].end()).first -
           prompts[a].begin();
  };
  EXPECT_GT(common(0, 2), 90);
  EXPECT_LT(common(0, 1), 60);
}

TEST(Percentile, IsTheSmallestSampleThatSoManyDoNotExceed) {
  const std::vector<double> sorted{1, 2, 3, 4};
  EXPECT_EQ(percentile(sorted, 50), 2);
  EXPECT_EQ(percentile(sorted, 75.1), 4);
  EXPECT_EQ(percentile(sorted, 0), 1);
  EXPECT_EQ(percentile({}, 50), 0);
}

TEST(Chart, IsAPngOrAStatusThatNamesTheFile) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() / "chart.png";
  ASSERT_TRUE(write_percentile_chart(file, "random chat", {{"ttft", {1, 2, 3}}, {"e2e", {}}}).ok());
  std::ifstream in(file, std::ios::binary);
  std::string magic(8, '\0');
  in.read(magic.data(), 8);
  EXPECT_EQ(magic, "\x89PNG\r\n\x1a\n");
  const Status failed = write_percentile_chart(folder.path() / "no/such/chart.png", "x", {});
  EXPECT_THAT(failed.message(), HasSubstr("no/such/chart.png"));
}

}  // namespace
}  // namespace levada::bench
