// From deltas to bytes: the exact events of each dialect, failures before and after the first byte, and law 10.
#include "serve/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "serve/test_model.h"

namespace levada::serve {
namespace {

using Json = nlohmann::json;

CallSpec call_of(Dialect dialect, bool stream, std::size_t members = 1) {
  CallSpec call;
  call.dialect = dialect;
  call.id = "id-1";
  call.model = "m";
  call.stream = stream;
  for (std::size_t i = 0; i < members; ++i) call.members.push_back({{}, "rid-" + std::to_string(i)});
  return call;
}

core::OutputDelta delta_of(std::vector<core::Token> ids, std::string text, std::int32_t total) {
  core::OutputDelta delta;
  delta.token_ids = std::move(ids);
  delta.text = std::move(text);
  delta.prompt_tokens = 10;
  delta.cached_tokens = 4;
  delta.completion_tokens = total;
  return delta;
}

core::OutputDelta ended(core::OutputDelta delta, core::FinishReason reason, Status status = {}) {
  delta.finish = core::Finish{reason, std::monostate(), std::move(status)};
  return delta;
}

// The JSON documents of a stream's events; "[DONE]" as a string.
std::vector<Json> events_of(const std::string& bytes) {
  std::vector<Json> events;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t end = bytes.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event must end with an empty line";
    EXPECT_EQ(bytes.substr(at, 6), "data: ");
    const std::string data = bytes.substr(at + 6, end - at - 6);
    events.push_back(data == "[DONE]" ? Json(data) : Json::parse(data));
    at = end + 2;
  }
  return events;
}

TEST(ChatStream, IsRoleThenContentThenFinishThenUsageThenDone) {
  CallSpec spec = call_of(Dialect::kChat, true);
  spec.include_usage = true;
  Answer answer(spec, 99);
  const Emission first = answer.on_delta(0, delta_of({1}, "He\"y\n", 1), 5);
  EXPECT_EQ(first.status, 200);
  EXPECT_TRUE(first.stream);
  EXPECT_EQ(
      first.bytes,
      "data: {\"id\":\"id-1\",\"object\":\"chat.completion.chunk\",\"created\":99,\"model\":\"m\",\"choices\":[{"
      "\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],"
      "\"usage\":null}\n\n"
      "data: {\"id\":\"id-1\",\"object\":\"chat.completion.chunk\",\"created\":99,\"model\":\"m\",\"choices\":[{"
      "\"index\":0,\"delta\":{\"content\":\"He\\\"y\\n\"},\"logprobs\":null,\"finish_reason\":null}],"
      "\"usage\":null}\n\n");
  const Emission last = answer.on_delta(0, ended(delta_of({2}, "", 2), core::FinishReason::kLength), 6);
  EXPECT_TRUE(last.end);
  EXPECT_TRUE(answer.done());
  const std::vector<Json> events = events_of(last.bytes);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[1]["choices"], Json::array());
  EXPECT_EQ(events[1]["usage"], Json::parse(R"({"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,
                                                "prompt_tokens_details":{"cached_tokens":4}})"));
  EXPECT_EQ(events[2], "[DONE]");
}

TEST(ChatStream, SaysNothingForATokenWhoseTextIsHeldBackAndNoUsageUnasked) {
  Answer answer(call_of(Dialect::kChat, true), 1);
  (void)answer.on_delta(0, delta_of({1}, "a", 1), 1);
  const Emission held = answer.on_delta(0, delta_of({2}, "", 2), 2);
  EXPECT_TRUE(held.bytes.empty());
  const Emission last = answer.on_delta(0, ended(delta_of({3}, "", 3), core::FinishReason::kStop), 3);
  EXPECT_THAT(last.bytes, ::testing::Not(::testing::HasSubstr("usage")));
}

TEST(Failure, BeforeTheFirstByteIsAnHttpError) {
  for (const Dialect dialect : {Dialect::kChat, Dialect::kCompletion, Dialect::kGenerate}) {
    for (const bool stream : {false, true}) {
      Answer answer(call_of(dialect, stream), 1);
      const Emission failed =
          answer.on_delta(0, ended({}, core::FinishReason::kError, resource_exhausted("the queue is full")), 1);
      EXPECT_EQ(failed.status, 429);
      EXPECT_FALSE(failed.stream);
      EXPECT_TRUE(failed.end);
      EXPECT_EQ(Json::parse(failed.bytes),
                Json::parse(
                    R"({"error":{"message":"the queue is full","type":"rate_limit_error","param":null,"code":429}})"));
    }
  }
}

TEST(Failure, AfterTheFirstByteIsOneErrorEventAndNoDone) {
  for (const Dialect dialect : {Dialect::kChat, Dialect::kCompletion, Dialect::kGenerate}) {
    Answer answer(call_of(dialect, true), 1);
    (void)answer.on_delta(0, delta_of({1}, "abc", 1), 1);
    const Emission failed = answer.on_delta(0, ended({}, core::FinishReason::kError, internal_error("device lost")), 2);
    EXPECT_TRUE(failed.end);
    EXPECT_EQ(failed.status, 0);
    const std::vector<Json> events = events_of(failed.bytes);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0]["error"]["code"], 500);
  }
}

TEST(Failure, AnAbortIsAnAnswerOfGenerateAndAnErrorOfOpenAi) {
  const Status aborted(StatusCode::kAborted, "aborted by request");
  Answer native(call_of(Dialect::kGenerate, false), 1);
  (void)native.on_delta(0, delta_of({1}, "abc", 1), 1);
  const Emission answered = native.on_delta(0, ended(delta_of({}, "", 1), core::FinishReason::kAbort, aborted), 2);
  EXPECT_EQ(answered.status, 200);
  EXPECT_EQ(Json::parse(answered.bytes)["text"], "abc");
  EXPECT_EQ(Json::parse(answered.bytes)["meta_info"]["finish_reason"]["type"], "abort");
  Answer openai(call_of(Dialect::kChat, false), 1);
  const Emission refused = openai.on_delta(0, ended({}, core::FinishReason::kAbort, aborted), 2);
  EXPECT_EQ(refused.status, 499);
  Answer stopping(call_of(Dialect::kGenerate, false), 1);
  EXPECT_EQ(stopping.on_delta(0, ended({}, core::FinishReason::kAbort, unavailable("stopping")), 2).status, 503);
}

TEST(Generate, StreamsCumulativeTextIdsAndCounts) {
  Answer answer(call_of(Dialect::kGenerate, true), 1);
  const Json first = events_of(answer.on_delta(0, delta_of({7}, "a", 1), 1'000'000).bytes)[0];
  EXPECT_EQ(first["text"], "a");
  EXPECT_EQ(first["meta_info"]["finish_reason"], nullptr);
  core::OutputDelta stop = delta_of({8, 9}, "b", 3);
  stop.finish = core::Finish{core::FinishReason::kStop, core::Token{9}, {}};
  const std::vector<Json> events = events_of(answer.on_delta(0, stop, 2'500'000).bytes);
  EXPECT_EQ(events[0],
            Json::parse(R"({"text":"ab","output_ids":[7,8,9],"meta_info":{"id":"rid-0","weight_version":"default",
      "finish_reason":{"type":"stop","matched":9},"prompt_tokens":10,"completion_tokens":3,"cached_tokens":4,
      "e2e_latency":2.5}})"));
  EXPECT_EQ(events[1], "[DONE]");
}

TEST(Batch, WholeAnswerWaitsForAllAndKeepsTheirOrder) {
  CallSpec spec = call_of(Dialect::kGenerate, false, 2);
  spec.batch = true;
  Answer answer(spec, 1);
  EXPECT_EQ(answer.on_delta(1, ended(delta_of({2}, "second", 1), core::FinishReason::kStop), 1).status, 0);
  const Emission whole = answer.on_delta(0, ended(delta_of({1}, "first", 1), core::FinishReason::kStop), 2);
  const Json list = Json::parse(whole.bytes);
  EXPECT_EQ(list[0]["text"], "first");
  EXPECT_EQ(list[1]["text"], "second");
}

core::TokenLogprob logprob_of(core::Token token, float logprob, std::vector<core::TokenLogprob::Alternative> top = {}) {
  return {token, logprob, std::move(top)};
}

TEST(Logprobs, OfChatNameTextAndBytesAndEachTokensOwnAlternatives) {  // B40
  CallSpec spec = call_of(Dialect::kChat, false);
  spec.tokenizer = &test_tokenizer();
  spec.members[0].request.logprobs.emplace();
  const core::Token hi = test_tokenizer().encode("Hi", {false, false})[0];
  const core::Token half = test_tokenizer().encode("\xF0\x9F\x98\x80", {false, false})[0];
  core::OutputDelta delta = ended(delta_of({hi, half}, "Hi", 2), core::FinishReason::kLength);
  delta.logprobs = {logprob_of(hi, -0.5f, {{hi, -0.5f}, {half, core::kLeastLogprob}}), logprob_of(half, -2)};
  Answer answer(spec, 1);
  const Json content = Json::parse(answer.on_delta(0, delta, 1).bytes)["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0], Json::parse(R"({"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[
      {"token":"Hi","logprob":-0.5,"bytes":[72,105]},
      {"token":"bytes:\\xf0\\x9f","logprob":-9999.0,"bytes":[240,159]}]})"));
  EXPECT_EQ(content[1]["top_logprobs"], Json::array());
}

TEST(Logprobs, OfACompletionBeginWithTheEchoedPromptWhoseFirstTokenHasNone) {
  CallSpec spec = call_of(Dialect::kCompletion, true);
  spec.tokenizer = &test_tokenizer();
  spec.echo = true;
  spec.members[0].request.logprobs.emplace();
  const std::vector<core::Token> prompt = test_tokenizer().encode("caf\u00e9 is", {false, false});
  spec.members[0].request.prompt = prompt;
  const core::Token open = test_tokenizer().encode(" open", {false, false})[0];
  core::OutputDelta delta = ended(delta_of({open}, " open", 1), core::FinishReason::kLength);
  for (std::size_t i = 1; i < prompt.size(); ++i) delta.prompt_logprobs.push_back(logprob_of(prompt[i], -1));
  delta.logprobs = {logprob_of(open, -3, {{open, -3}})};
  Answer answer(spec, 1);
  const Json choice = events_of(answer.on_delta(0, delta, 1).bytes)[0]["choices"][0];
  EXPECT_EQ(choice["text"], "caf\u00e9 is open");
  const Json& told = choice["logprobs"];
  EXPECT_EQ(told["tokens"].size(), prompt.size() + 1);
  EXPECT_EQ(told["token_logprobs"][0], nullptr);
  EXPECT_EQ(told["top_logprobs"][0], nullptr);
  EXPECT_EQ(told["token_logprobs"].back(), -3);
  EXPECT_EQ(told["top_logprobs"].back(), Json::parse(R"({" open":-3})"));
  EXPECT_EQ(told["text_offset"].back(), 7);  // characters, not bytes
}

TEST(Generate, TellsWhatSpeculationGaveOnceThereWasAny) {
  Answer answer(call_of(Dialect::kGenerate, true), 1);
  EXPECT_FALSE(
      events_of(answer.on_delta(0, delta_of({7}, "a", 1), 1).bytes)[0]["meta_info"].contains("spec_verify_ct"));
  core::OutputDelta drafted = ended(delta_of({8, 9}, "b", 3), core::FinishReason::kLength);
  drafted.speculation = {4, 20, 5};
  const Json meta = events_of(answer.on_delta(0, drafted, 1).bytes)[0]["meta_info"];
  EXPECT_EQ(meta["spec_verify_ct"], 4);
  EXPECT_EQ(meta["spec_draft_token_num"], 20);
  EXPECT_EQ(meta["spec_accepted_drafts"], 5);
  EXPECT_EQ(meta["spec_accept_length"], 2.25);
  EXPECT_EQ(meta["spec_accept_rate"], 0.25);
}

TEST(Logprobs, OfGenerateAreCumulativeTriples) {
  CallSpec spec = call_of(Dialect::kGenerate, true);
  spec.members[0].request.prompt = {4, 5, 6};
  spec.members[0].request.logprobs = core::LogprobRequest{1, 1};
  core::OutputDelta first = delta_of({7}, "a", 1), second = ended(delta_of({8}, "b", 2), core::FinishReason::kLength);
  first.prompt_logprobs = {logprob_of(6, -1.5f, {{9, -0.25f}})};
  first.logprobs = {logprob_of(7, -2, {{7, -2}})};
  second.logprobs = {logprob_of(8, -3, {{5, -1}})};
  Answer answer(spec, 1);
  const Json early = events_of(answer.on_delta(0, first, 1).bytes)[0]["meta_info"];
  EXPECT_EQ(early["input_token_logprobs"], Json::parse("[[null,5,null],[-1.5,6,null]]"));
  EXPECT_EQ(early["input_top_logprobs"], Json::parse("[null,[[-0.25,9,null]]]"));
  const Json meta = events_of(answer.on_delta(0, second, 1).bytes)[0]["meta_info"];
  EXPECT_EQ(meta["output_token_logprobs"], Json::parse("[[-2.0,7,null],[-3.0,8,null]]"));
  EXPECT_EQ(meta["output_top_logprobs"], Json::parse("[[[-2.0,7,null]],[[-1.0,5,null]]]"));
}

TEST(HiddenStates, AreThePromptsRowsThenOneRowPerToken) {
  CallSpec spec = call_of(Dialect::kGenerate, false);
  spec.hidden_size = 2;
  spec.members[0].request.hidden = core::HiddenWish::kAll;
  core::OutputDelta first = delta_of({7}, "a", 1), second = ended(delta_of({8}, "b", 2), core::FinishReason::kLength);
  first.prompt_tokens = second.prompt_tokens = 2;
  first.hidden = {1, 2, 3, 4};
  second.hidden = {5, 6};
  Answer answer(spec, 1);
  (void)answer.on_delta(0, first, 1);
  EXPECT_EQ(Json::parse(answer.on_delta(0, second, 1).bytes)["meta_info"]["hidden_states"],
            Json::parse("[[[1,2],[3,4]],[5,6]]"));
}

TEST(Choices, ShareOnePromptInTheUsageAndKeepTheirIndex) {
  CallSpec spec = call_of(Dialect::kChat, true, 2);
  spec.choices = 2;
  spec.include_usage = true;
  Answer answer(spec, 1);
  std::string bytes = answer.on_delta(1, ended(delta_of({1}, "b", 1), core::FinishReason::kStop), 1).bytes;
  bytes += answer.on_delta(0, ended(delta_of({1}, "a", 1), core::FinishReason::kStop), 1).bytes;
  std::map<int, std::string> texts;
  Json usage;
  for (const Json& event : events_of(bytes)) {
    if (event.is_string()) continue;
    for (const Json& choice : event["choices"]) texts[choice["index"]] += choice["delta"].value("content", "");
    usage = event["usage"];
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "a"}, {1, "b"}}));
  EXPECT_EQ(usage["prompt_tokens"], 10);
  EXPECT_EQ(usage["completion_tokens"], 2);
}

// What a client folds out of a stream.
struct Folded {
  std::string text, finish;
  std::vector<int> ids;
  Json usage;
  Json logprobs = Json::array();
};

void fold_logprobs(Dialect dialect, const Json& choice, Folded& folded) {
  if (choice["logprobs"].is_null()) return;
  for (const Json& value : choice["logprobs"][dialect == Dialect::kChat ? "content" : "token_logprobs"]) {
    folded.logprobs.push_back(value);
  }
}

Folded fold_stream(Dialect dialect, const std::string& bytes) {
  Folded folded;
  for (const Json& event : events_of(bytes)) {
    if (event.is_string()) continue;
    if (dialect == Dialect::kGenerate) {
      folded.text = event["text"];
      folded.ids = event["output_ids"].get<std::vector<int>>();
      folded.finish = event["meta_info"]["finish_reason"].dump();
      folded.usage = event["meta_info"]["completion_tokens"];
      folded.logprobs = event["meta_info"]["output_token_logprobs"];
      continue;
    }
    if (event["choices"].empty()) {
      folded.usage = event["usage"];
      continue;
    }
    const Json& choice = event["choices"][0];
    folded.text += dialect == Dialect::kChat ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
    if (!choice["finish_reason"].is_null()) folded.finish = choice["finish_reason"];
    fold_logprobs(dialect, choice, folded);
  }
  return folded;
}

Folded fold_whole(Dialect dialect, const Json& answer) {
  if (dialect == Dialect::kGenerate) {
    return {answer["text"], answer["meta_info"]["finish_reason"].dump(), answer["output_ids"].get<std::vector<int>>(),
            answer["meta_info"]["completion_tokens"], answer["meta_info"]["output_token_logprobs"]};
  }
  const Json& choice = answer["choices"][0];
  const Json& text = dialect == Dialect::kChat ? choice["message"]["content"] : choice["text"];
  Folded folded{text, choice["finish_reason"], {}, answer["usage"]};
  fold_logprobs(dialect, choice, folded);
  return folded;
}

RC_GTEST_PROP(Law10, TheWholeAnswerIsTheFoldOfTheStreamHoweverItWasCut, ()) {
  const auto dialect = *rc::gen::element(Dialect::kChat, Dialect::kCompletion, Dialect::kGenerate);
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("", "a", "\"", "\\", "\n", "\x01", "é", "😀", "</script>", " two words"));
  CallSpec spec = call_of(dialect, true);
  spec.include_usage = true;
  spec.members[0].request.logprobs.emplace();
  Answer streamed(spec, 1);
  spec.stream = false;
  Answer whole(spec, 1);
  std::string bytes;
  Emission last;
  std::size_t at = 0;
  std::int32_t total = 0;
  do {  // the stream in random cuts, the whole answer token by token
    const std::size_t take = std::min<std::size_t>(pieces.size() - at, *rc::gen::inRange(1, 4));
    std::string text;
    std::vector<core::Token> ids;
    std::vector<core::TokenLogprob> logprobs;
    for (std::size_t i = 0; i < take; ++i, ++at) {
      text += pieces[at];
      ids.push_back(static_cast<core::Token>(at));
      auto one = delta_of({static_cast<core::Token>(at)}, pieces[at], static_cast<std::int32_t>(at) + 1);
      one.logprobs = {logprob_of(static_cast<core::Token>(at), -0.5f * static_cast<float>(at))};
      logprobs.push_back(one.logprobs[0]);
      if (at + 1 < pieces.size())
        (void)whole.on_delta(0, one, 1);
      else
        last = whole.on_delta(0, ended(one, core::FinishReason::kStop), 1);
    }
    total += static_cast<std::int32_t>(take);
    core::OutputDelta cut = delta_of(std::move(ids), std::move(text), total);
    cut.logprobs = std::move(logprobs);
    if (at == pieces.size()) cut = ended(std::move(cut), core::FinishReason::kStop);
    bytes += streamed.on_delta(0, cut, 1).bytes;
  } while (at < pieces.size());
  if (pieces.empty()) last = whole.on_delta(0, ended(delta_of({}, "", 0), core::FinishReason::kStop), 1);
  const Folded from_stream = fold_stream(dialect, bytes);
  const Folded from_whole = fold_whole(dialect, Json::parse(last.bytes));
  RC_ASSERT(from_stream.text == from_whole.text);
  RC_ASSERT(from_stream.finish == from_whole.finish);
  RC_ASSERT(from_stream.ids == from_whole.ids);
  RC_ASSERT(from_stream.usage == from_whole.usage);
  RC_ASSERT(from_stream.logprobs == from_whole.logprobs);
  RC_ASSERT(from_stream.logprobs.size() == pieces.size());
}

}  // namespace
}  // namespace levada::serve
