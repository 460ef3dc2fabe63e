// The OpenAPI document: it lists what the server serves, and describes bodies by what their parsers ask for.
#include "serve/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/chain_model_test.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

class OpenApi : public ::testing::Test {
 protected:
  OpenApi() : site_({}, {}) {
    site_.start();
    document_ = Json::parse(site_.client().get("/openapi.json").value().body);
  }
  Json schema(const std::string& path) const {
    return document_["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
  }
  Json fields(const std::string& path) const { return schema(path)["properties"]; }

  Site site_;
  Json document_;
};

TEST_F(OpenApi, ListsExactlyTheServersRoutes) {
  std::vector<std::string> listed;
  for (const auto& [path, methods] : document_["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      std::string name = method + " " + path;
      for (std::size_t i = 0; i < method.size(); ++i) name[i] = static_cast<char>(std::toupper(name[i]));
      listed.push_back(name);
    }
  }
  std::sort(listed.begin(), listed.end());
  EXPECT_THAT(listed, ElementsAreArray(site_.routes()));
}

TEST_F(OpenApi, EveryBodyIsDescribedByTheFieldsItsParserAsksFor) {
  for (const auto& [path, methods] : document_["paths"].items()) {
    if (!methods.contains("post") || path == "/flush_cache" || path == "/drafts/rollback") continue;  // without bodies
    EXPECT_TRUE(fields(path).is_object()) << path << " has no line in openapi.cc";
  }
  EXPECT_EQ(fields("/v1/chat/completions")["temperature"],
            Json::parse(R"({"type":"number","minimum":0.0,"maximum":10000.0})"));
  EXPECT_EQ(fields("/v1/completions")["top_p"]["exclusiveMinimum"], 0.0);
  EXPECT_EQ(fields("/v1/chat/completions")["stream_options"]["properties"]["include_usage"]["type"], "boolean");
  EXPECT_EQ(fields("/generate")["sampling_params"]["properties"]["max_new_tokens"]["type"], "integer");
  EXPECT_EQ(schema("/v1/responses")["required"], Json::array({"input"}));
}

TEST_F(OpenApi, AnAdaptersBodyHoldsItsClientsFieldsAlone) {
  const Json responses = fields("/v1/responses");
  EXPECT_TRUE(responses.contains("max_output_tokens"));
  EXPECT_FALSE(responses.contains("messages"));
  EXPECT_FALSE(responses.contains("max_tokens"));
  EXPECT_EQ(responses["temperature"]["type"], "number") << "what the chat parser says of it";
  EXPECT_FALSE(fields("/v1/messages").contains("stop"));
}

// A field the document gives a type is one its parser checks.
TEST_F(OpenApi, AWrongTypeOfADescribedFieldIsRefusedByName) {
  http::Client client = site_.client();
  const Json described = fields("/v1/completions");
  for (const auto& [name, schema] : described.items()) {
    if (!schema.contains("type") || schema["type"] == "object") continue;
    const char* wrong = schema["type"] == "array" ? "7" : "[]";
    if (name == "prompt") continue;
    const std::string body = "{\"prompt\":\"x\",\"" + name + "\":" + wrong + "}";
    const auto answer = client.post("/v1/completions", body).value();
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_THAT(answer.body, HasSubstr("\"param\":\"" + name)) << body;
  }
}

}  // namespace
}  // namespace levada::serve
