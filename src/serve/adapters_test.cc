// /v1/responses and /v1/messages: what their bodies become as chat bodies, and how their answers are phrased.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/answer.h"
#include "serve/chat_adapter.h"
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
  EXPECT_EQ(fault(parse_responses, R"({"input":"x","tools":[{"type":"web_search"}]})"), "tools");
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
  EXPECT_EQ(fault(parse_messages, R"({"max_tokens":4,"tools":[{"name":"f"}],)" + hi + "}"), "tools");
  EXPECT_EQ(
      fault(parse_messages, R"({"max_tokens":4,"tools":[{"name":"f"}],"tool_choice":{"type":"none"},)" + hi + "}"),
      "none");
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
