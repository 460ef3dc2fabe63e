#include "up/draft_client.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "http/test_socket.h"

namespace levada::up {
namespace {

using testing::HasSubstr;

constexpr const char* kServing =
    R"({"serving": {"name": "2-b4", "path": "/d/2-b4", "version": 3, "block_size": 4, "layers": 1, "bytes": 9,
        "speculation": {"steps": 10, "drafts": 30, "accepted": 12, "accept_length": 2.2}}, "previous": null})";

// A server that answers what the test says and keeps what it was asked.
class DraftClientTest : public testing::Test {
 protected:
  DraftClientTest() {
    for (const auto& [method, path] : {std::pair{"GET", "/drafts"},
                                       {"POST", "/drafts"},
                                       {"DELETE", "/drafts"},
                                       {"POST", "/drafts/rollback"},
                                       {"POST", "/generate"}}) {
      site.server->route(method, path, [this](http::Request in, http::Responder out) {
        asked = in;
        out.respond(status, "application/json", answer);
      });
    }
    site.start();
  }

  int status = 200;
  std::string answer = kServing;
  http::Request asked;
  http::TestServer site;
  DraftClient client{{.host = "127.0.0.1", .port = site.port()}, "secret"};
};

TEST_F(DraftClientTest, TellsWhatServes) {
  const Result<ServedDrafts> drafts = client.list();
  ASSERT_TRUE(drafts.ok()) << drafts.status().to_string();
  ASSERT_TRUE(drafts->serving.has_value());
  EXPECT_EQ(drafts->serving->name, "2-b4");
  EXPECT_EQ(drafts->serving->block_size, 4);
  EXPECT_EQ(drafts->serving->accept_length, 2.2);
  EXPECT_FALSE(drafts->previous.has_value());
  EXPECT_EQ(asked.headers["authorization"], "Bearer secret");
}

TEST_F(DraftClientTest, LoadsByPathAndName) {
  ASSERT_TRUE(client.load("/d/2-b4", "2-b4").ok());
  EXPECT_EQ(nlohmann::json::parse(asked.body), nlohmann::json({{"path", "/d/2-b4"}, {"name", "2-b4"}}));
}

TEST_F(DraftClientTest, MeasuresWithAllDraftsVerifiedAndLeavesNoLiveSample) {
  answer =
      R"({"meta_info": {"completion_tokens": 22, "e2e_latency": 0.5, "spec_verify_ct": 10, "spec_accepted_drafts": 12}})";
  const Result<DraftedAnswer> got = client.answer({1, 2, 3}, 64);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_DOUBLE_EQ(got->accept_length(), 2.2);
  EXPECT_EQ(asked.headers["x-levada-no-capture"], "1");
  const nlohmann::json body = nlohmann::json::parse(asked.body);
  EXPECT_EQ(body["input_ids"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(body["sampling_params"],
            nlohmann::json({{"temperature", 0}, {"max_new_tokens", 64}, {"spec_full_blocks", true}}));
}

TEST_F(DraftClientTest, AnAnswerOfAServerWithoutDraftsHasTheLengthOne) {
  answer = R"({"meta_info": {"completion_tokens": 22, "e2e_latency": 0.5}})";
  EXPECT_DOUBLE_EQ(client.answer({1}, 64)->accept_length(), 1);
}

TEST_F(DraftClientTest, ARefusalKeepsTheServersWordsAndAFaultIsUnavailable) {
  answer = R"({"error": {"message": "path: a draft of 5 layers; there is room for 4"}})";
  status = 413;
  const Status refused = client.load("/d", "").status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("there is room for 4"));
  status = 503;
  EXPECT_EQ(client.unload().status().code(), StatusCode::kUnavailable);
}

TEST_F(DraftClientTest, WhatAnotherServerAnswersIsDataLoss) {
  for (const char* text :
       {"", "{}", R"({"serving": 3, "previous": null})", R"({"serving": {"name": 1}, "previous": null})"}) {
    answer = text;
    EXPECT_EQ(client.roll_back().status().code(), StatusCode::kDataLoss) << text;
  }
}

}  // namespace
}  // namespace levada::up
