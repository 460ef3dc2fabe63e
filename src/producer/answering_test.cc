// Prompts to samples: who is asked what, what is kept, and what happens when nobody answers.
#include "producer/answering.h"

#include <gtest/gtest.h>

#include "consumer/test_registry.h"
#include "producer/scripted_server.h"

namespace levada::producer {
namespace {

class AnsweringTest : public testing::Test {
 protected:
  AnsweringTest() {
    rules_.bounds = {20, 4};
    rules_.batch = 2;
  }

  // Text of n letters is n tokens: 1, 2, … n.
  static Result<std::vector<std::int32_t>> tokenize(const Prompt& prompt) {
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 1; i <= prompt.text.size(); ++i) tokens.push_back(static_cast<std::int32_t>(i));
    return tokens;
  }
  Result<Preparation> prepare(const std::string& lines, std::vector<CaptureServer*> servers) {
    return prepare_samples(*parse_prompts(lines), rules_, tokenize, std::move(servers), pause_);
  }
  Result<Preparation> prepare(const std::string& lines) { return prepare(lines, {&connection_}); }

  AnswerRules rules_;
  ManualClock clock_;
  consumer::ClockPause pause_{clock_};
  ScriptedServer server_{"http://s:1", {"store", {1, 2}, 4, DType::kBF16}, clock_};
  ScriptedConnection connection_{server_};
};

TEST_F(AnsweringTest, TheTargetsAnswerIsTheSupervisedPart) {
  const auto prepared = prepare("{\"text\": \"abc\", \"task_id\": \"x\"}");
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  ASSERT_EQ(prepared->samples.size(), 1u);
  EXPECT_EQ(prepared->samples[0].task_id, "x");
  EXPECT_EQ(prepared->samples[0].input_ids, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(prepared->samples[0].loss_mask, (std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1, 1}));
}

TEST_F(AnsweringTest, AnAnswerEndsAtTheSamplesMaximumLength) {
  const auto prepared = prepare("{\"text\": \"" + std::string(17, 'x') + "\"}");
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(prepared->samples[0].input_ids.size(), 20u);
}

TEST_F(AnsweringTest, TokensOfTheFileAreNotAskedFor) {
  server_.is_down = true;
  const auto prepared = prepare("{\"input_ids\": [7, 8, 9], \"loss_mask\": [0, 1, 1]}");
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  EXPECT_EQ(prepared->samples[0].input_ids, (std::vector<std::int32_t>{7, 8, 9}));
}

TEST_F(AnsweringTest, P3B47EverythingOfferedIsKeptOrDroppedWithItsReason) {
  const auto prepared = prepare(
      "{\"input_ids\": [7, 8, 9], \"loss_mask\": [0, 0, 1]}\n"
      "{\"input_ids\": [7, 8, 9], \"loss_mask\": [1, 0, 1]}\n"
      "{\"input_ids\": [7, 8, 9], \"loss_mask\": [0, 1, 1]}\n"
      "{\"text\": \"" +
      std::string(19, 'x') + "\"}\n");
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(prepared->samples.size(), 1u);
  EXPECT_EQ(prepared->offered, 4);
  const std::map<std::string, std::int64_t> dropped = {{"fewer than two supervised tokens", 1},
                                                       {"no two neighbouring supervised tokens", 1},
                                                       {"no room for an answer", 1}};
  EXPECT_EQ(prepared->dropped, dropped);
}

TEST_F(AnsweringTest, P3LongSamplesAreCutAndSupervisionIsBounded) {
  std::string ids = "1", mask = "1";
  for (int i = 2; i <= 30; ++i) ids += "," + std::to_string(i), mask += i <= 2 || i > 17 ? ",1" : ",0";
  const auto prepared = prepare("{\"input_ids\": [" + ids + "], \"loss_mask\": [" + mask + "]}");
  ASSERT_TRUE(prepared.ok());
  // 1, 2, 18 and 19 are the four supervised tokens allowed.
  EXPECT_EQ(prepared->samples[0].input_ids.size(), 19u);
}

TEST_F(AnsweringTest, NoMorePromptsAreLookedAtThanAreNeeded) {
  rules_.max_samples = 2;
  const auto prepared =
      prepare("{\"text\":\"a\"}\n{\"input_ids\":[1],\"loss_mask\":[0]}\n{\"text\":\"b\"}\n{\"text\":\"c\"}");
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(prepared->samples.size(), 2u);
  EXPECT_EQ(prepared->offered, 3);
}

TEST_F(AnsweringTest, ServersTakeTurnsWhenOneFails) {
  ScriptedServer other("http://t:1", {"store", {1, 2}, 4, DType::kBF16}, clock_);
  ScriptedConnection second(other);
  server_.is_down = true;
  const auto prepared = prepare("{\"text\": \"abc\"}", {&connection_, &second});
  ASSERT_TRUE(prepared.ok()) << prepared.status().to_string();
  EXPECT_EQ(prepared->samples.size(), 1u);
}

TEST_F(AnsweringTest, FiveAttemptsWithGrowingPausesThenAFailure) {
  server_.is_down = true;
  EXPECT_EQ(prepare("{\"text\": \"abc\"}").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(clock_.now_us(), 15'000'000);  // 1 + 2 + 4 + 8 s
}

TEST_F(AnsweringTest, AStopEndsTheWaiting) {
  server_.is_down = true;
  pause_.on_wait = [&] { pause_.stop(); };
  EXPECT_EQ(prepare("{\"text\": \"abc\"}").status().code(), StatusCode::kAborted);
}

// A server that answers what is no answer.
class OddServer final : public CaptureServer {
 public:
  Result<http::ClientResponse> post(const std::string&, const std::string&, std::int64_t) override {
    http::ClientResponse response;
    response.status = status;
    response.body = body;
    return response;
  }
  Result<http::ClientResponse> get(const std::string&, std::int64_t) override { return unavailable("not asked"); }
  int status = 200;
  std::string body;
};

TEST_F(AnsweringTest, AnAnswerThatIsNoneIsNeverTakenForOne) {
  OddServer odd;
  for (const char* body : {"", "{}", "[]", "[7]", "[{\"output_ids\": 7}]", "[{\"output_ids\": [-1]}]",
                           "[{\"output_ids\": [4294967296]}]", "[{\"output_ids\": [1]}, {\"output_ids\": [1]}]"}) {
    odd.body = body;
    EXPECT_EQ(prepare("{\"text\": \"abc\"}", {&odd}).status().code(), StatusCode::kUnavailable) << body;
  }
  odd.status = 400;
  odd.body = "{\"error\": \"too long\"}";
  const Status refused = prepare("{\"text\": \"abc\"}", {&odd}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("too long"), std::string::npos);
}

}  // namespace
}  // namespace levada::producer
