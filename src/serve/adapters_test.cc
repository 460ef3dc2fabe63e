// /v1/responses and /v1/messages: what their bodies become as chat bodies, and how their answers are phrased.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/answer.h"
#include "serve/chat_adapter.h"
#include "serve/openai_text.h"
#include "serve/test_model.h"
#include "text/decoded_test.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Parse = Result<CallSpec> (*)(const ParseContext&, simdjson::dom::object);

class Adapters : public ::testing::Test {
 protected:
  Result<CallSpec> parse(Parse parser, const std::string& body) {
    const ParseContext context{model_, [] { return std::uint64_t{1}; }, [] { return std::string("id"); }, 7};
    LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object object, parse_object(json_, body));
    return parser(context, object);
  }
  std::string prompt(Parse parser, const std::string& body) {
    const auto call = parse(parser, body);
    if (!call.ok()) return call.status().to_string();
    return text::decoded(*model_.tokenizer, call->members.front().request.prompt);
  }
  std::string fault(Parse parser, const std::string& body) {
    const auto call = parse(parser, body);
    return call.ok() ? "none" : call.status().field();
  }

  ModelContext model_ = test_model();
  simdjson::dom::parser json_;
};

TEST_F(Adapters, TheSameConversationIsTheSamePromptInAllThreeDialects) {
  const std::string chat = prompt(parse_chat, R"({"messages":[{"role":"system","content":"Be brief."},
      {"role":"user","content":"Hi there"},{"role":"assistant","content":"Yes?"},{"role":"user","content":"Go"}]})");
  EXPECT_THAT(chat, HasSubstr("Be brief."));
  EXPECT_EQ(prompt(parse_responses, R"({"instructions":"Be brief.","input":[
      {"role":"user","content":[{"type":"input_text","text":"Hi"},{"type":"input_text","text":"there"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes?","annotations":[]}]},
      {"type":"reasoning","summary":[]},{"role":"user","content":"Go"}]})"),
            chat);
  EXPECT_EQ(prompt(parse_messages, R"({"max_tokens":5,"system":[{"type":"text","text":"Be brief."}],"messages":[
      {"role":"user","content":[{"type":"text","text":"Hi"},{"type":"text","text":"there"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Yes?"}]},
      {"role":"user","content":"Go"}]})"),
            chat);
  EXPECT_EQ(prompt(parse_responses, R"({"input":"Go"})"),
            prompt(parse_chat, R"({"messages":[{"role":"user","content":"Go"}]})"));
}

TEST_F(Adapters, LimitsStopsAndSamplingReachTheRequest) {
  const auto responses = parse(parse_responses, R"({"input":"x","max_output_tokens":7,"temperature":0.5,"seed":3})");
  ASSERT_TRUE(responses.ok()) << responses.status().to_string();
  EXPECT_EQ(responses->members.front().request.sampling.max_new_tokens, 7);
  EXPECT_EQ(responses->members.front().request.sampling.seed, 3u);
  const auto messages = parse(parse_messages,
                              R"({"max_tokens":9,"stop_sequences":["END"],"top_k":4,"stream":true,
                                  "messages":[{"role":"user","content":"x"}]})");
  ASSERT_TRUE(messages.ok()) << messages.status().to_string();
  const core::SamplingParams& sampling = messages->members.front().request.sampling;
  EXPECT_EQ(sampling.max_new_tokens, 9);
  EXPECT_EQ(sampling.top_k, 4);
  EXPECT_THAT(sampling.stop, ElementsAre("END"));
  EXPECT_TRUE(messages->stream);
}

TEST_F(Adapters, FaultsAreNamedInTheClientsWords) {
  EXPECT_EQ(fault(parse_responses, R"({})"), "input");
  EXPECT_EQ(fault(parse_responses, R"({"input":[]})"), "input");
  EXPECT_EQ(fault(parse_responses, R"({"input":[{"role":"user"}]})"), "input[0].content");
  EXPECT_EQ(fault(parse_responses, R"({"input":[{"type":"computer_call"}]})"), "input[0].type");
  EXPECT_EQ(fault(parse_responses, R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})"),
            "input[0].content[0].type");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","max_output_tokens":0})"), "max_output_tokens");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","previous_response_id":"resp_1"})"), "previous_response_id");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","background":true})"), "background");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","tools":[{"type":"web_search"}]})"), "tools[0].type");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","tools":[{"type":"function","name":"a b"}]})"), "tools[0].name");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","tools":[{"type":"function","name":"f"}],
                                       "tool_choice":{"type":"function","name":"g"}})"),
            "tool_choice.name");
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","model":"other"})"), "model");
  const std::string hi = R"("messages":[{"role":"user","content":"x"}])";
  EXPECT_EQ(fault(parse_messages, "{" + hi + "}"), "max_tokens");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4})"), "messages");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"messages":[]})"), "messages");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"messages":[{"role":"system","content":"x"}]})"),
            "messages[0].role");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"messages":[{"role":"user","content":[{"type":"image"}]}]})"),
            "messages[0].content[0].type");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"stop_sequences":[""],)" + hi + "}"), "stop_sequences");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"thinking":{"type":"enabled","budget_tokens":9},)" + hi + "}"),
            "thinking.type");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"tools":[{"type":"bash_20250124","name":"bash"}],)" + hi + "}"),
            "tools[0].type");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"tools":[{"name":"f","input_schema":[]}],)" + hi + "}"),
            "tools[0].input_schema");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"tools":[{"name":"f"},{"name":"f"}],)" + hi + "}"),
            "tools[1].name");
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"tool_choice":{"type":"any"},)" + hi + "}"), "tool_choice");
}

TEST_F(Adapters, ToolsAndTheirCallsAreTheSamePromptInAllThreeDialects) {
  const auto chat_template = text::ChatTemplate::parse(
      "{{ tools | tojson }}{% for m in messages %}{{ m.role }}:{{ m.content }}"
      "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n{% endfor %}");
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().to_string();
  model_.chat_template = chat_template->get();
  const std::string schema = R"({"type":"object","properties":{"city":{"type":"string"}}})";
  const std::string chat = prompt(parse_chat, R"({"tools":[{"type":"function","function":{"name":"f","description":"d",
      "parameters":)" + schema + R"(}}],"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":"So:","tool_calls":[
        {"type":"function","id":"1","function":{"name":"f","arguments":"{\"city\":\"Graz\"}"}},
        {"type":"function","id":"2","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"1","content":"sun"}]})");
  EXPECT_THAT(chat, HasSubstr("Graz"));
  EXPECT_EQ(
      prompt(parse_responses, R"({"tools":[{"type":"function","name":"f","description":"d","parameters":)" + schema +
                                  R"(}],"input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"So:"},
      {"type":"function_call","call_id":"1","name":"f","arguments":"{\"city\":\"Graz\"}"},
      {"type":"function_call","call_id":"2","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"1","output":"sun"}]})"),
      chat);
  EXPECT_EQ(
      prompt(parse_messages, R"({"max_tokens":5,"tools":[{"name":"f","description":"d","input_schema":)" + schema +
                                 R"(}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[
      {"type":"text","text":"So:"},{"type":"tool_use","id":"1","name":"f","input":{"city":"Graz"}},
      {"type":"tool_use","id":"2","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"sun"}]}]})"),
      chat);
}

TEST_F(Adapters, ThinkingIsTheTemplatesSwitch) {
  const auto chat_template =
      text::ChatTemplate::parse("{% if enable_thinking is defined %}{{ enable_thinking }}{% else %}-{% endif %}");
  ASSERT_TRUE(chat_template.ok());
  model_.chat_template = chat_template->get();
  model_.replies = reply_style("none", "qwen3", model_.tokenizer).value();
  const auto ask = [&](const std::string& fields) {
    return prompt(parse_messages, R"({"max_tokens":20,"messages":[{"role":"user","content":"x"}])" + fields + "}");
  };
  EXPECT_EQ(ask(""), "-");
  EXPECT_EQ(ask(R"(,"thinking":{"type":"enabled","budget_tokens":1024})"), "True");
  EXPECT_EQ(ask(R"(,"thinking":{"type":"disabled"})"), "False");
  EXPECT_EQ(ask(R"(,"thinking":{"type":"adaptive"})"), "-");
  EXPECT_EQ(ask(R"(,"thinking":{"type":"enabled"},"chat_template_kwargs":{"enable_thinking":false})"), "False");
}

TEST_F(Adapters, CountingTokensNeedsNoLimitAndAgreesWithThePrompt) {
  const std::string body = R"({"messages":[{"role":"user","content":"Hi there"}]})";
  const auto object = parse_object(json_, body);
  const auto counted = count_message_tokens(model_, *object);
  ASSERT_TRUE(counted.ok()) << counted.status().to_string();
  simdjson::dom::parser again;
  const ParseContext context{model_, [] { return std::uint64_t{1}; }, [] { return std::string("id"); }, 7};
  const auto chat = parse_chat(context, *parse_object(again, body));
  EXPECT_EQ(Json::parse(*counted)["input_tokens"], chat->members.front().request.prompt.size());
}

// ---- Answers ----

struct Event {
  std::string name;
  Json data;
};

std::vector<Event> named_events_of(const std::string& stream) {
  std::vector<Event> events;
  for (std::size_t at = 0, end; (end = stream.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string block = stream.substr(at, end - at);
    const std::size_t data = block.find("\ndata: ");
    events.push_back({block.substr(7, data - 7), Json::parse(block.substr(data + 7))});
  }
  return events;
}

struct Phrased {
  std::string streamed;
  Json whole;
};

// The same three deltas, streamed and whole.
Phrased phrase(Dialect dialect, const core::Finish& finish) {
  Phrased phrased;
  for (const bool stream : {true, false}) {
    CallSpec call;
    call.dialect = dialect;
    call.id = "the-id";
    call.model = "m";
    call.stream = stream;
    call.members.emplace_back();
    Answer answer(call, 1234);
    std::string bytes;
    const char* texts[] = {"Hel", "", "lo \"you\""};
    for (int i = 0; i < 3; ++i) {
      core::OutputDelta delta{.text = texts[i], .prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = i + 1};
      if (i == 2) delta.finish = finish;
      bytes += answer.on_delta(0, delta, 0).bytes;
    }
    if (stream) {
      phrased.streamed = bytes;
    } else {
      phrased.whole = Json::parse(bytes);
    }
  }
  return phrased;
}

TEST(MessagesAnswer, StreamedBlocksJoinToTheWholeAnswer) {
  const Phrased phrased = phrase(Dialect::kMessages, {.reason = core::FinishReason::kStop, .matched = "END"});
  std::string text, names;
  Json last;
  for (const Event& event : named_events_of(phrased.streamed)) {
    EXPECT_EQ(event.name, event.data["type"]);
    names += event.name + " ";
    if (event.name == "content_block_delta") text += event.data["delta"]["text"];
    if (event.name == "message_delta") last = event.data;
    if (event.name == "message_start") {
      EXPECT_EQ(event.data["message"]["usage"]["input_tokens"], 6);
      EXPECT_TRUE(event.data["message"]["stop_reason"].is_null());
    }
  }
  EXPECT_EQ(
      names,
      "message_start content_block_start content_block_delta content_block_delta content_block_stop message_delta "
      "message_stop ");
  EXPECT_EQ(phrased.whole["content"][0]["text"], text);
  EXPECT_EQ(phrased.whole["stop_reason"], "stop_sequence");
  EXPECT_EQ(phrased.whole["stop_sequence"], "END");
  EXPECT_EQ(last["delta"]["stop_reason"], "stop_sequence");
  EXPECT_EQ(last["usage"], phrased.whole["usage"]);
  EXPECT_EQ(phrased.whole["usage"]["cache_read_input_tokens"], 4);
}

TEST(ResponsesAnswer, TheLastEventHoldsTheWholeAnswer) {
  const Phrased phrased = phrase(Dialect::kResponses, {.reason = core::FinishReason::kLength});
  const std::vector<Event> events = named_events_of(phrased.streamed);
  std::string text;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].name, events[i].data["type"]);
    EXPECT_EQ(events[i].data["sequence_number"], i);
    if (events[i].name == "response.output_text.delta") text += events[i].data["delta"];
  }
  EXPECT_EQ(events.front().name, "response.created");
  EXPECT_EQ(events.back().name, "response.incomplete");
  EXPECT_EQ(events.back().data["response"], phrased.whole);
  EXPECT_EQ(phrased.whole["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(phrased.whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(phrased.whole["usage"]["total_tokens"], 13);
}

TEST(Usage, CountsTheTokensOfReasoningWithTheirTags) {
  const auto count = [](std::vector<core::Token> ids, bool open) {
    AnswerFold fold;
    fold.token_ids = std::move(ids);
    return reasoning_tokens(ReasoningTokens{100, 101, open}, fold);
  };
  EXPECT_EQ(count({5, 100, 7, 8, 101, 9}, false), 4);
  EXPECT_EQ(count({7, 8, 101, 9}, true), 3) << "the prompt opened it";
  EXPECT_EQ(count({100, 7}, false), 2) << "cut by the limit";
  EXPECT_EQ(count({5, 7, 101}, false), 0);
  EXPECT_EQ(reasoning_tokens(std::nullopt, {}), 0);
}

// ---- Reasoning and tool calls ----

constexpr const char* kReasonedCall =
    "<think>\nhm é</think>\n\nLook:<tool_call>{\"name\":\"f\",\"arguments\":{\"city\":\"Graz\"}}</tool_call>"
    "<tool_call>{\"name\":\"f\"}</tool_call>";

CallSpec reasoned_call(Dialect dialect, bool stream) {
  reply::Form form;
  form.calls = reply::CallFormat::kHermes;
  form.tools = {{"f", {}}};
  form.reasoning = reply::ReasoningTags{"<think>", "</think>"};
  CallSpec call;
  call.dialect = dialect;
  call.id = "the-id";
  call.stream = stream;
  call.members.emplace_back();
  call.form = std::make_shared<const reply::Form>(form);
  call.call_ids = "x";
  return call;
}

core::OutputDelta piece_of(const std::string& text, bool last, core::FinishReason reason) {
  core::OutputDelta delta{.text = text, .prompt_tokens = 10, .completion_tokens = 9};
  if (last) delta.finish = core::Finish{reason, {}, {}};
  return delta;
}

Json whole_of(Dialect dialect, const std::string& text, core::FinishReason reason) {
  Answer answer(reasoned_call(dialect, false), 1);
  return Json::parse(answer.on_delta(0, piece_of(text, true, reason), 0).bytes);
}

std::vector<Event> streamed_of(Dialect dialect, const std::vector<std::string>& pieces, core::FinishReason reason) {
  Answer answer(reasoned_call(dialect, true), 1);
  std::string bytes;
  for (const std::string& piece : pieces) bytes += answer.on_delta(0, piece_of(piece, false, reason), 0).bytes;
  return named_events_of(bytes + answer.on_delta(0, piece_of("", true, reason), 0).bytes);
}

// What a client of Anthropic's builds from the events.
Json message_of(const std::vector<Event>& events) {
  Json message, text = Json::array();
  for (const auto& [name, data] : events) {
    if (name == "message_start") message = data["message"];
    if (name == "content_block_start") {
      EXPECT_EQ(data["index"], message["content"].size());
      message["content"].push_back(data["content_block"]);
      text.push_back("");
    }
    if (name == "content_block_delta") {
      for (const char* field : {"text", "thinking", "partial_json"}) {
        if (data["delta"].contains(field))
          text.back() = text.back().get<std::string>() + data["delta"][field].get<std::string>();
      }
    }
    if (name == "content_block_stop") {
      Json& block = message["content"][data["index"].get<std::size_t>()];
      const std::string told = text.back();
      if (block["type"] == "tool_use") block["input"] = Json::parse(told);
      if (block["type"] == "text") block["text"] = told;
      if (block["type"] == "thinking") block["thinking"] = told;
    }
    if (name == "message_delta") {
      message.update(data["delta"]);
      message["usage"] = data["usage"];
    }
  }
  return message;
}

TEST(MessagesAnswer, TellsThoughtsTextAndCallsAsBlocks) {
  const Json message = whole_of(Dialect::kMessages, kReasonedCall, core::FinishReason::kStop);
  const Json expected = {{{"type", "thinking"}, {"thinking", "hm é"}, {"signature", ""}},
                         {{"type", "text"}, {"text", "Look:"}},
                         {{"type", "tool_use"}, {"id", "x_0"}, {"name", "f"}, {"input", {{"city", "Graz"}}}},
                         {{"type", "tool_use"}, {"id", "x_1"}, {"name", "f"}, {"input", Json::object()}}};
  EXPECT_EQ(message["content"], expected);
  EXPECT_EQ(message["stop_reason"], "tool_use");
}

TEST(ResponsesAnswer, TellsThoughtsTextAndCallsAsItems) {
  const Json output = whole_of(Dialect::kResponses, kReasonedCall, core::FinishReason::kStop)["output"];
  ASSERT_EQ(output.size(), 4u) << output;
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"][0], (Json{{"type", "reasoning_text"}, {"text", "hm é"}}));
  EXPECT_EQ(output[1]["content"][0]["text"], "Look:");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["arguments"], R"({"city":"Graz"})");
  EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);
}

// B38 in these dialects: what the limit cut is no call.
TEST(NamedEvents, ACallCutByTheLimitIsText) {
  const std::string cut = std::string(kReasonedCall).substr(0, 70);
  const Json message = whole_of(Dialect::kMessages, cut, core::FinishReason::kLength);
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["content"].back()["type"], "text");
  const Json response = whole_of(Dialect::kResponses, cut, core::FinishReason::kLength);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"].back()["type"], "message");
  EXPECT_EQ(response["output"].back()["status"], "incomplete");
}

RC_GTEST_PROP(NamedEvents, StreamedAnswersAreTheWholeOnes, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "<tool_call>", "</tool_call>", "<think>", "</think>", "{\"name\":\"f\"}", "text", "é", "\n", kReasonedCall));
  const auto reason = *rc::gen::element(core::FinishReason::kStop, core::FinishReason::kLength);
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  RC_ASSERT(message_of(streamed_of(Dialect::kMessages, pieces, reason)) == whole_of(Dialect::kMessages, text, reason));
  const std::vector<Event> events = streamed_of(Dialect::kResponses, pieces, reason);
  RC_ASSERT(events.back().data["response"] == whole_of(Dialect::kResponses, text, reason));
  Json items = Json::array();
  for (const auto& [name, data] : events) {
    if (name == "response.output_item.done") items.push_back(data["item"]);
  }
  RC_ASSERT(items == events.back().data["response"]["output"]);
}

TEST(NamedEvents, AFailureAfterTheFirstByteIsAnErrorEventAndTheEnd) {
  for (const Dialect dialect : {Dialect::kMessages, Dialect::kResponses}) {
    CallSpec call;
    call.dialect = dialect;
    call.stream = true;
    call.members.emplace_back();
    Answer answer(call, 1);
    answer.on_delta(0, {.text = "x", .completion_tokens = 1}, 0);
    const Emission emission = answer.on_failure(internal_error("the device is gone"));
    const std::vector<Event> events = named_events_of(emission.bytes);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].name, "error");
    EXPECT_EQ(events[0].data["type"], "error");
    EXPECT_THAT(std::string(events[0].data["error"]["message"]), HasSubstr("the device is gone"));
    EXPECT_TRUE(emission.end);
  }
}

}  // namespace
}  // namespace levada::serve
