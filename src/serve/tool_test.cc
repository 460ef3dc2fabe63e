// Tool calls and reasoning as clients see them: whole and streamed, asked for and forced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "serve/answer.h"
#include "serve/chain_model_test.h"
#include "serve/request_parser.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kTools = R"([
    {"type":"function","function":{"name":"weather","description":"of a city","parameters":{"type":"object",
     "properties":{"city":{"enum":["Graz","Porto"]},"days":{"type":"integer","minimum":1,"maximum":9}},
     "required":["city","days"]}}},
    {"type":"function","function":{"name":"now"}}])";

CallSpec call_of(reply::CallFormat format, bool stream) {
  reply::Form form;
  form.calls = format;
  form.tools = {{"weather", {"city"}}, {"now", {}}};
  form.reasoning = reply::ReasoningTags{"<think>", "</think>"};
  CallSpec call;
  call.dialect = Dialect::kChat;
  call.id = "c";
  call.model = "m";
  call.stream = stream;
  call.members.resize(1);
  call.form = std::make_shared<const reply::Form>(form);
  call.call_ids = "call_x";
  return call;
}

core::OutputDelta delta_of(const std::string& text, std::optional<core::FinishReason> finish = {}) {
  core::OutputDelta delta;
  delta.text = text;
  if (finish) delta.finish = core::Finish{*finish, {}, {}};
  return delta;
}

Json whole(reply::CallFormat format, const std::string& text, core::FinishReason finish) {
  Answer answer(call_of(format, false), 0);
  return Json::parse(answer.on_delta(0, delta_of(text, finish), 0).bytes)["choices"][0];
}

// The message a client puts together, with what must hold of the deltas on the way.
Json folded(const std::string& stream) {
  Json message = {{"content", nullptr}, {"reasoning_content", nullptr}}, finish;
  const auto add = [](Json& text, const Json& more) {
    text = (text.is_null() ? "" : text.get<std::string>()) + more.get<std::string>();
  };
  for (std::size_t at = 0, end; (end = stream.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = stream.substr(at + 6, end - at - 6);
    if (data == "[DONE]") continue;
    const Json choice = Json::parse(data)["choices"][0];
    const Json& delta = choice["delta"];
    if (delta.contains("content")) add(message["content"], delta["content"]);
    if (delta.contains("reasoning_content")) add(message["reasoning_content"], delta["reasoning_content"]);
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      EXPECT_EQ(call["index"], message.value("tool_calls", Json::array()).size()) << "calls are counted";
      Json told = call;
      told.erase("index");
      message["tool_calls"].push_back(told);
    }
    finish = choice["finish_reason"];
  }
  if (message["content"] == "" && message.contains("tool_calls")) message["content"] = nullptr;
  return {{"message", message}, {"finish_reason", finish}};
}

Json streamed(reply::CallFormat format, const std::vector<std::string>& chunks, core::FinishReason finish) {
  Answer answer(call_of(format, true), 0);
  std::string bytes;
  for (const std::string& chunk : chunks) bytes += answer.on_delta(0, delta_of(chunk), 0).bytes;
  bytes += answer.on_delta(0, delta_of("", finish), 0).bytes;
  return folded(bytes);
}

TEST(ToolCalls, ComeWholeWithIdTypeAndName) {
  const Json choice =
      whole(reply::CallFormat::kHermes,
            "<think>\nGraz.</think>\n\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Graz\"}}"
            "</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>",
            core::FinishReason::kStop);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["reasoning_content"], "Graz.");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], (Json{{"name", "weather"}, {"arguments", R"({"city":"Graz"})"}}));
  EXPECT_EQ(calls[1]["function"], (Json{{"name", "now"}, {"arguments", "{}"}}));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

// B38: an answer cut inside a call has no call, whole or streamed, and says that it was cut.
TEST(ToolCalls, CutByTheLimitAreNone) {
  const std::string text = "Look: <tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Gr";
  const Json choice = whole(reply::CallFormat::kHermes, text, core::FinishReason::kLength);
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["content"], text);
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_EQ(streamed(reply::CallFormat::kHermes, {text.substr(0, 20), text.substr(20)}, core::FinishReason::kLength),
            (Json{{"message", {{"content", text}, {"reasoning_content", nullptr}}}, {"finish_reason", "length"}}));
}

RC_GTEST_PROP(ToolCalls, StreamedAreTheWholeOnes, ()) {
  const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "<tool_call>", "</tool_call>", "<think>", "</think>", "{\"name\":\"now\"}", "text", "é", "\n",
      "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"€\"}}</tool_call>", "<|python_tag|>", "{", "\"",
      "<tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>"));
  std::string text;
  for (const std::string& part : parts) text += part;
  std::vector<std::string> chunks;
  for (std::size_t at = 0; at < text.size();) {  // as the decoder cuts: never inside a character
    std::size_t end = std::min(text.size(), at + *rc::gen::inRange<std::size_t>(1, 12));
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    chunks.push_back(text.substr(at, end - at));
    at = end;
  }
  for (const auto format : {reply::CallFormat::kHermes, reply::CallFormat::kLlama3, reply::CallFormat::kGlm}) {
    Json expected = whole(format, text, core::FinishReason::kStop);
    expected["message"].erase("role");
    Json got = streamed(format, chunks, core::FinishReason::kStop);
    if (got["message"]["content"].is_null() && !got["message"].contains("tool_calls")) got["message"]["content"] = "";
    RC_ASSERT(got["message"] == expected["message"]);
    RC_ASSERT(got["finish_reason"] == expected["finish_reason"]);
  }
}

// --- Over HTTP; the model would say something else.

class Tools : public ::testing::Test {
 protected:
  Tools() { site_.start(); }
  http::ClientResponse post(const Json& fields) {
    Json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                 {"tools", Json::parse(kTools)},
                 {"temperature", 1},
                 {"seed", 3},
                 {"max_tokens", 150}};
    body.update(fields);
    return site_.client().post("/v1/chat/completions", body.dump()).value();
  }
  std::string refusal(const Json& fields) {
    const http::ClientResponse response = post(fields);
    EXPECT_EQ(response.status, 400) << response.body;
    const Json error = Json::parse(response.body)["error"];
    return error["param"].get<std::string>() + ": " + error["message"].get<std::string>();
  }
  Site site_;
};

TEST_F(Tools, RequiredGivesCallsOnly) {
  std::set<std::string> names;
  for (int seed = 0; seed < 6; ++seed) {
    const http::ClientResponse response =
        post({{"tool_choice", "required"}, {"parallel_tool_calls", false}, {"seed", seed}});
    ASSERT_EQ(response.status, 200) << response.body;
    const Json choice = Json::parse(response.body)["choices"][0];
    ASSERT_EQ(choice["finish_reason"], "tool_calls") << choice;
    EXPECT_TRUE(choice["message"]["content"].is_null());
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
    const Json& function = choice["message"]["tool_calls"][0]["function"];
    names.insert(function["name"]);
    EXPECT_TRUE(Json::parse(function["arguments"].get<std::string>()).is_object());
  }
  EXPECT_EQ(names, (std::set<std::string>{"weather", "now"}));
}

TEST_F(Tools, NamedGivesACallOfThatOneWholeAndStreamed) {
  const Json named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  const Json choice = Json::parse(post({{"tool_choice", named}}).body)["choices"][0];
  const Json& function = choice["message"]["tool_calls"].at(0)["function"];
  EXPECT_EQ(function["name"], "weather");
  const Json arguments = Json::parse(function["arguments"].get<std::string>());
  EXPECT_TRUE(arguments["city"] == "Graz" || arguments["city"] == "Porto");
  EXPECT_GE(arguments["days"].get<int>(), 1);
  const Json stream = folded(post({{"tool_choice", named}, {"stream", true}}).body);
  EXPECT_EQ(stream["message"]["tool_calls"][0]["function"], function);
  EXPECT_EQ(stream["finish_reason"], "tool_calls");
}

TEST_F(Tools, EachChoiceHasItsOwn) {
  const Json answer = Json::parse(post({{"tool_choice", "required"}, {"n", 3}, {"max_tokens", 100}}).body);
  std::set<std::string> ids;
  for (const Json& choice : answer["choices"]) ids.insert(choice["message"]["tool_calls"].at(0)["id"]);
  EXPECT_EQ(ids.size(), 3u) << answer;
}

TEST_F(Tools, AutoAndNoneMayAnswerInWords) {
  for (const char* choice : {"auto", "none"}) {
    const http::ClientResponse response = post({{"tool_choice", choice}, {"temperature", 0}, {"max_tokens", 5}});
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_FALSE(Json::parse(response.body)["choices"][0]["message"].contains("tool_calls"));
  }
}

TEST_F(Tools, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(refusal({{"tool_choice", "maybe"}}), HasSubstr("tool_choice: must be"));
  EXPECT_THAT(refusal({{"tool_choice", "required"}, {"tools", Json::array()}}), HasSubstr("there are no tools"));
  EXPECT_THAT(refusal({{"tool_choice", {{"function", {{"name", "fly"}}}}}}),
              HasSubstr("tool_choice.function.name: 'fly' is none of the tools"));
  EXPECT_THAT(refusal({{"tools", {Json::object()}}}), HasSubstr("tools[0].function: is missing"));
  EXPECT_THAT(refusal({{"tools", {{{"function", {{"name", "a b"}}}}}}}), HasSubstr("tools[0].function.name: must be"));
  EXPECT_THAT(refusal({{"tools", {{{"function", {{"name", "a"}}}}, {{"function", {{"name", "a"}}}}}}}),
              HasSubstr("tools[1].function.name: the name 'a' is taken"));
  EXPECT_THAT(refusal({{"tool_choice", "required"}, {"response_format", {{"type", "json_object"}}}}),
              HasSubstr("response_format: "));
}

}  // namespace
}  // namespace levada::serve
