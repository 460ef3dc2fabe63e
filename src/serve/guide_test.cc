// Answers of a given form, over real HTTP and a scripted model that would say something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "serve/chain_model_test.h"
#include "serve/grammar_guide.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kSchema = R"({"type":"object","required":["city","zip","kind"],"properties":{
    "city":{"enum":["Porto","Graz"]},"zip":{"type":"string","pattern":"^[0-9]{4}$"},"kind":{"type":"boolean"}}})";

class Guided : public ::testing::Test {
 protected:
  Guided() { site_.start(); }

  http::ClientResponse post(const std::string& path, const Json& body) {
    return site_.client().post(path, body.dump()).value();
  }
  static Json chat(const Json& response_format) {
    return {{"messages", {{{"role", "user"}, {"content", "Where?"}}}},
            {"temperature", 1},
            {"seed", 5},
            {"max_tokens", 120},
            {"response_format", response_format}};
  }
  static Json schema_format() {
    return {{"type", "json_schema"}, {"json_schema", {{"name", "place"}, {"schema", Json::parse(kSchema)}}}};
  }
  static void expect_place(const std::string& text) {
    const Json place = Json::parse(text);
    EXPECT_TRUE(place["city"] == "Porto" || place["city"] == "Graz") << text;
    EXPECT_TRUE(std::regex_match(place["zip"].get<std::string>(), std::regex("[0-9]{4}"))) << text;
    EXPECT_TRUE(place["kind"].is_boolean()) << text;
    EXPECT_EQ(place.size(), 3u) << text;
  }
  std::string message_of(const http::ClientResponse& response) {
    EXPECT_EQ(response.status, 400) << response.body;
    const Json error = Json::parse(response.body)["error"];
    return error["param"].get<std::string>() + ": " + error["message"].get<std::string>();
  }

  Site site_;
};

TEST_F(Guided, AnswersWithWhatTheSchemaDescribes) {
  for (int seed = 0; seed < 6; ++seed) {
    Json body = chat(schema_format());
    body["seed"] = seed;
    const Json answer = Json::parse(post("/v1/chat/completions", body).body);
    const Json& choice = answer["choices"][0];
    ASSERT_EQ(choice["finish_reason"], "stop") << answer;
    expect_place(choice["message"]["content"]);
  }
}

TEST_F(Guided, StreamsTheSameAnswer) {
  Json body = chat(schema_format());
  const Json whole = Json::parse(post("/v1/chat/completions", body).body);
  body["stream"] = true;
  const std::string stream = post("/v1/chat/completions", body).body;
  std::string text;
  for (std::size_t at = 0, end; (end = stream.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = stream.substr(at + 6, end - at - 6);
    if (data != "[DONE]") text += Json::parse(data)["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
}

TEST_F(Guided, GivesEachPromptOfABatchItsOwnForm) {
  const Json body = {{"text", {"a", "b", "c"}},
                     {"sampling_params",
                      {{{"regex", "(cat|dog) [0-9]{2}"}},
                       {{"json_schema", kSchema}, {"max_new_tokens", 100}},
                       {{"ebnf", "root ::= \"yes\" | \"no\""}}}}};
  const Json answers = Json::parse(post("/generate", body).body);
  ASSERT_EQ(answers.size(), 3u) << answers;
  EXPECT_TRUE(std::regex_match(answers[0]["text"].get<std::string>(), std::regex("(cat|dog) [0-9]{2}"))) << answers;
  expect_place(answers[1]["text"]);
  EXPECT_TRUE(answers[2]["text"] == "yes" || answers[2]["text"] == "no") << answers;
}

TEST_F(Guided, TakesARegexFromBothOpenAiEndpoints) {
  Json body = {{"prompt", {"one", "two"}}, {"max_tokens", 30}, {"regex", "[ab]{5}"}};
  const Json answer = Json::parse(post("/v1/completions", body).body);
  for (const Json& choice : answer["choices"]) {
    EXPECT_TRUE(std::regex_match(choice["text"].get<std::string>(), std::regex("[ab]{5}"))) << answer;
  }
}

TEST_F(Guided, ReachesItsEndInSpiteOfIgnoreEos) {
  const Json body = {{"text", "a"},
                     {"sampling_params", {{"regex", "[ab]{5}"}, {"ignore_eos", true}, {"max_new_tokens", 20}}}};
  const Json answer = Json::parse(post("/generate", body).body);
  EXPECT_EQ(answer["meta_info"]["completion_tokens"], 20) << answer;
  EXPECT_TRUE(std::regex_match(answer["text"].get<std::string>(), std::regex("[ab]{5}"))) << answer;
}

TEST_F(Guided, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(message_of(post("/v1/chat/completions", chat({{"type", "yaml"}}))), HasSubstr("response_format.type: "));
  EXPECT_THAT(message_of(post("/v1/chat/completions", chat({{"type", "json_schema"}}))),
              HasSubstr("response_format.json_schema: is missing"));
  const Json bad = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "quux"}}}}}};
  EXPECT_THAT(message_of(post("/v1/chat/completions", chat(bad))),
              HasSubstr("response_format.json_schema.schema: can't be used"));
  Json both = chat({{"type", "json_object"}});
  both["regex"] = "a";
  EXPECT_THAT(message_of(post("/v1/chat/completions", both)), HasSubstr("regex: the answer's form is already given"));
  const Json native = {{"text", "a"}, {"sampling_params", {{"ebnf", "start ::= \"a\""}}}};
  EXPECT_THAT(message_of(post("/generate", native)), HasSubstr("sampling_params.ebnf: can't be used"));
  Json plain = chat({{"type", "text"}});
  EXPECT_EQ(post("/v1/chat/completions", plain).status, 200);
}

TEST(GrammarGuide, LeavesTheReasoningFree) {
  grammar::Compiler compiler(test_tokenizer(), test_tokenizer().vocab_size(), {*test_tokenizer().eos()}, {});
  const auto grammar = compiler.compile({grammar::Source::Kind::kRegex, "a"}).value();
  const core::Token a = *test_tokenizer().token_id("a"), b = *test_tokenizer().token_id("b"), begin = 500, end = 501;
  const auto shown = [&](GrammarGuide& guide, core::Token id) {
    std::vector<std::uint32_t> words((static_cast<std::size_t>(test_tokenizer().vocab_size()) + 31) / 32, ~0u);
    return !guide.allowed(words) || (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
  };
  GrammarGuide open(grammar, ReasoningTokens{begin, end, true});
  EXPECT_TRUE(shown(open, b)) << "the prompt opened it";
  ASSERT_TRUE(open.accept(b).ok());
  ASSERT_TRUE(open.accept(end).ok());
  EXPECT_FALSE(shown(open, b));
  EXPECT_TRUE(shown(open, a));

  GrammarGuide may_open(grammar, ReasoningTokens{begin, end, false});
  EXPECT_TRUE(shown(may_open, begin));
  EXPECT_FALSE(shown(may_open, b));
  ASSERT_TRUE(may_open.accept(begin).ok());
  EXPECT_TRUE(shown(may_open, b));

  GrammarGuide did_not(grammar, ReasoningTokens{begin, end, false});
  ASSERT_TRUE(did_not.accept(a).ok());
  EXPECT_FALSE(shown(did_not, begin));
  EXPECT_FALSE(did_not.accept(b).ok());
}

}  // namespace
}  // namespace levada::serve
