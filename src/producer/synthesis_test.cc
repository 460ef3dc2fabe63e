#include "producer/synthesis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

namespace levada::producer {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

// A chat is 7, 8, then the letters of the user's words, then 9.
Result<Tokens> tokenize(const Prompt& prompt) {
  const std::string words = Json::parse(prompt.messages)[0]["content"].get<std::string>();
  Tokens tokens{7, 8};
  for (const char letter : words) tokens.push_back(100 + letter);
  tokens.push_back(9);
  return tokens;
}

// Writes question number `seed`, every fifth one the same, every seventh one too short; answers with four tokens.
class Target {
 public:
  std::unique_ptr<CaptureServer> connect(bool no_capture) { return std::make_unique<Connection>(*this, no_capture); }

  std::set<Tokens> asked_chats;
  bool beginnings_only = true;  // what came with kNoCaptureHeader
  int failures_left = 0;

 private:
  struct Connection final : CaptureServer {
    Connection(Target& owner, bool no_capture) : target(owner), unsampled(no_capture) {}
    Result<http::ClientResponse> post(const std::string& path, const std::string& body, std::int64_t) override {
      EXPECT_EQ(path, "/generate");
      std::lock_guard lock(target.mutex_);
      if (target.failures_left > 0) {
        --target.failures_left;
        return http::ClientResponse{503, {}, "busy"};
      }
      const Json request = Json::parse(body);
      Json rows = Json::array();
      for (std::size_t i = 0; i < request["input_ids"].size(); ++i) rows.push_back(row(request, i));
      return http::ClientResponse{200, {}, rows.dump()};
    }
    Result<http::ClientResponse> get(const std::string&, std::int64_t) override { return unavailable("not asked"); }

    Json row(const Json& request, std::size_t i) const {
      const Tokens input = request["input_ids"][i].get<Tokens>();
      const Json& sampling = request["sampling_params"][i];
      if (unsampled) {
        target.beginnings_only = target.beginnings_only && input == Tokens{7, 8};
        const auto number = sampling["seed"].get<std::uint64_t>() - 42;
        std::string text = number % 5 == 0 ? "the same question" : "question number " + std::to_string(number);
        if (number % 7 == 1) text = "Hm";
        return {{"text", text}, {"output_ids", Tokens(text.size(), 1)}};
      }
      EXPECT_EQ(sampling["temperature"], 0.0);
      target.asked_chats.insert(input);
      return {{"text", "Well."}, {"output_ids", {1, 2, 3, 4}}};
    }

    Target& target;
    const bool unsampled;
  };
  std::mutex mutex_;
};

struct SynthesisTest : testing::Test {
  Result<SynthesisReport> run() {
    return synthesize(
        rules, tokenize, [this](bool no_capture) { return target.connect(no_capture); }, pause,
        [this](const SynthesisReport& report) { last = report; });
  }
  Target target;
  StoppablePause pause;
  SynthesisRules rules{.questions = 100, .connections = 3, .batch = 4};
  SynthesisReport last;
};

TEST_F(SynthesisTest, OnlyAnswersAreOfferedAndEachQuestionIsAskedOnce) {
  const auto report = run();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->asked, 100);
  EXPECT_TRUE(target.beginnings_only);
  EXPECT_EQ(report->answered, std::ssize(target.asked_chats));
  EXPECT_EQ(report->answered + report->repeated + report->too_short, 100);
  EXPECT_EQ(report->too_short, 15);
  EXPECT_GT(report->repeated, 10);
  EXPECT_EQ(report->answer_tokens, 4 * report->answered);
  EXPECT_EQ(last.asked, 100) << "progress is told to the end";
}

TEST_F(SynthesisTest, AFailedBatchIsCountedAndTheOthersGoOn) {
  target.failures_left = 2;
  const auto report = run();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->failed, 8);
  EXPECT_EQ(report->asked, 92);
}

TEST_F(SynthesisTest, AServerThatNeverAnswersIsSaid) {
  target.failures_left = 1000;
  const auto report = run();
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("503"), std::string::npos);
}

TEST_F(SynthesisTest, AStopEndsIt) {
  pause.stop();
  const auto report = run();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->asked, 0);
}

}  // namespace
}  // namespace levada::producer
