// The border: what a body may say, what each mistake is answered with, and what reaches the scheduler.
#include "serve/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "serve/error.h"
#include "serve/test_model.h"
#include "text/decoded_test.h"

namespace levada::serve {
namespace {

using Parse = Result<CallSpec> (*)(const ParseContext&, simdjson::dom::object);

class Border : public ::testing::Test {
 protected:
  Result<CallSpec> parse(Parse parser, const std::string& body) {
    std::uint64_t seed = 1000;
    const ParseContext context{model_, [&seed] { return seed++; }, [this] { return "id" + std::to_string(ids_++); }, 7};
    LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object object, parse_object(json_, body));
    return parser(context, object);
  }
  // A chat body with more fields: `fields` starts with a comma.
  Result<CallSpec> chat(const std::string& fields) {
    return parse(parse_chat, R"({"messages":[{"role":"user","content":"Hi"}])" + fields + "}");
  }
  Result<CallSpec> completion(const std::string& fields) { return parse(parse_completion, "{" + fields + "}"); }
  Result<CallSpec> generate(const std::string& fields) { return parse(parse_generate, "{" + fields + "}"); }

  ModelContext model_ = test_model();
  simdjson::dom::parser json_;
  int ids_ = 0;
};

struct Mistake {
  const char* body;
  StatusCode code;
  const char* field;
  const char* message_part;
};

TEST_F(Border, EveryMistakeInAChatBodyNamesItsFieldAndTheLimit) {
  const auto bad = StatusCode::kInvalidArgument;
  const Mistake mistakes[] = {
      {R"(,"temperature":-0.1)", bad, "temperature", "[0, 10000], got -0.1"},
      {R"(,"temperature":"hot")", bad, "temperature", "must be a number, got a string"},
      {R"(,"temperature":true)", bad, "temperature", "must be a number, got a boolean"},
      {R"(,"top_p":0)", bad, "top_p", "(0, 1]"},
      {R"(,"top_p":1.01)", bad, "top_p", "got 1.01"},
      {R"(,"min_p":-1)", bad, "min_p", "[0, 1]"},
      {R"(,"top_k":-2)", bad, "top_k", "got -2"},
      {R"(,"top_k":1.5)", bad, "top_k", "must be an integer"},
      {R"(,"frequency_penalty":3)", bad, "frequency_penalty", "[-2, 2]"},
      {R"(,"presence_penalty":-3)", bad, "presence_penalty", "[-2, 2]"},
      {R"(,"repetition_penalty":0)", bad, "repetition_penalty", "(0, 2]"},
      {R"(,"max_tokens":0)", bad, "max_tokens", "[1, "},
      {R"(,"max_tokens":-3)", bad, "max_tokens", "got -3"},
      {R"(,"max_tokens":99999999999999999999)", bad, "max_tokens", "64 bits: 99999999999999999999"},
      {R"(,"max_tokens":18446744073709551615)", bad, "max_tokens", "got 18446744073709551615"},
      {R"(,"max_tokens":300)", bad, "max_tokens", "context length (256 tokens)"},
      {R"(,"max_completion_tokens":0)", bad, "max_completion_tokens", "[1, "},
      {R"(,"max_tokens":4,"min_tokens":5)", bad, "min_tokens", "is 5, but at most 4 tokens are allowed by max_tokens"},
      {R"(,"seed":"x")", bad, "seed", "integer"},
      {R"(,"stop":"")", bad, "stop", "empty"},
      {R"(,"stop":["a",""])", bad, "stop", "empty"},
      {R"(,"stop":[1])", bad, "stop", "must be strings, got the integer 1"},
      {R"(,"stop":{"a":1})", bad, "stop", "list of strings"},
      {R"(,"stop_token_ids":[999999])", bad, "stop_token_ids", "outside the vocabulary [0, 49152)"},
      {R"(,"stop_token_ids":[1,-1])", bad, "stop_token_ids", "outside"},
      {R"(,"stop_token_ids":3)", bad, "stop_token_ids", "list"},
      {R"(,"stream":"yes")", bad, "stream", "true or false"},
      {R"(,"stream_options":{"include_usage":1})", bad, "stream_options.include_usage", "true or false"},
      {R"(,"rid":"")", bad, "rid", "empty"},
      {R"(,"rid":7)", bad, "rid", "string"},
      {R"(,"extra_key":[])", bad, "extra_key", "string"},
      {R"(,"chat_template_kwargs":3)", bad, "chat_template_kwargs", "object"},
      {R"(,"chat_template_kwargs":{"messages":[]})", bad, "chat_template_kwargs.messages", "set by the server"},
      {R"(,"reasoning_effort":3)", bad, "reasoning_effort", "must be a string"},
      {R"(,"continue_final_message":true)", bad, "continue_final_message", "must be the assistant's, got 'user'"},
      {R"(,"continue_final_message":1)", bad, "continue_final_message", "true or false"},
      {R"(,"model":"gpt-9")", StatusCode::kNotFound, "model", "'gpt-9'"},
  };
  for (const Mistake& mistake : mistakes) {
    const auto call = chat(mistake.body);
    ASSERT_FALSE(call.ok()) << mistake.body;
    EXPECT_EQ(call.status().code(), mistake.code) << mistake.body << call.status().to_string();
    EXPECT_EQ(call.status().field(), mistake.field) << mistake.body << call.status().to_string();
    EXPECT_THAT(call.status().message(), ::testing::HasSubstr(mistake.message_part)) << mistake.body;
  }
}

TEST_F(Border, BadMessagesAreNamedByTheirPlace) {
  const Mistake mistakes[] = {
      {R"({})", StatusCode::kInvalidArgument, "messages", "missing"},
      {R"({"messages":[]})", StatusCode::kInvalidArgument, "messages", "at least one"},
      {R"({"messages":"hi"})", StatusCode::kInvalidArgument, "messages", "list"},
      {R"({"messages":["hi"]})", StatusCode::kInvalidArgument, "messages[0]", "object"},
      {R"({"messages":[{"content":"x"}]})", StatusCode::kInvalidArgument, "messages[0].role", "missing"},
      {R"({"messages":[{"role":"king","content":"x"}]})", StatusCode::kInvalidArgument, "messages[0].role", "'king'"},
      {R"({"messages":[{"role":"user"}]})", StatusCode::kInvalidArgument, "messages[0].content", "missing"},
      {R"({"messages":[{"role":"user","content":null}]})", StatusCode::kInvalidArgument, "messages[0].content",
       "missing"},
      {R"({"messages":[{"role":"user","content":3}]})", StatusCode::kInvalidArgument, "messages[0].content",
       "got the integer 3"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", StatusCode::kInvalidArgument,
       "messages[0].content[0].type", "not supported yet"},
      {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", StatusCode::kInvalidArgument,
       "messages[0].content[0].text", "missing"},
      {R"({"messages":[{"role":"user","content":"a \udc00 b"}]})", StatusCode::kInvalidArgument, "messages[0].content",
       "surrogate"},
      {R"({"messages":[{"role":"user","content":"a \ud800 b"}]})", StatusCode::kInvalidArgument, "messages[0].content",
       "surrogate"},
  };
  for (const Mistake& mistake : mistakes) {
    const auto call = parse(parse_chat, mistake.body);
    ASSERT_FALSE(call.ok()) << mistake.body;
    EXPECT_EQ(call.status().code(), mistake.code) << mistake.body << call.status().to_string();
    if (mistake.field != nullptr) {
      EXPECT_EQ(call.status().field(), mistake.field) << call.status().to_string();
    }
    EXPECT_THAT(call.status().message(), ::testing::HasSubstr(mistake.message_part)) << mistake.body;
  }
}

// What a template may read has its type, even where this server's template doesn't read it.
TEST_F(Border, FieldsOfAMessageHaveTheirTypes) {
  const auto bad = StatusCode::kInvalidArgument;
  const Mistake mistakes[] = {
      {R"("role":"user","name":3)", bad, "messages[1].name", "must be a string, got the integer 3"},
      {R"("role":"tool","tool_call_id":{})", bad, "messages[1].tool_call_id", "must be a string, got an object"},
      {R"("role":"assistant","refusal":[])", bad, "messages[1].refusal", "string"},
      {R"("role":"assistant","reasoning_content":true)", bad, "messages[1].reasoning_content", "string"},
      {R"("role":"assistant","tool_calls":"f")", bad, "messages[1].tool_calls", "must be a list, got a string"},
      {R"("role":"assistant","tool_calls":[7])", bad, "messages[1].tool_calls[0]", "must be an object"},
      {R"("role":"assistant","tool_calls":[{},{"id":7}])", bad, "messages[1].tool_calls[1].id", "string"},
      {R"("role":"assistant","tool_calls":[{"function":"f"}])", bad, "messages[1].tool_calls[0].function", "object"},
      {R"("role":"assistant","tool_calls":[{"function":{"name":[]}}])", bad, "messages[1].tool_calls[0].function.name",
       "string"},
      {R"("role":"assistant","tool_calls":[{"function":{"arguments":7}}])", bad,
       "messages[1].tool_calls[0].function.arguments", "string of JSON"},
      {R"("role":"assistant","function_call":[])", bad, "messages[1].function_call", "object"},
      {R"("role":3)", bad, "messages[1].role", "string"},
  };
  const std::string head = R"({"messages":[{"role":"user","content":"Hi"},{"content":"x",)";
  for (const Mistake& mistake : mistakes) {
    const Status status = parse(parse_chat, head + mistake.body + "}]}").status();
    EXPECT_EQ(status.code(), mistake.code) << mistake.body;
    EXPECT_EQ(status.field(), mistake.field) << mistake.body;
    EXPECT_THAT(status.message(), ::testing::HasSubstr(mistake.message_part)) << mistake.body;
  }
  const char* right = R"("role":"assistant","name":"a","refusal":null,"tool_calls":[{"id":"1","type":"function",
      "function":{"name":"f","arguments":"{}"}},{"function":{"arguments":{"x":1}}}],"no_such_field":[1]}]})";
  EXPECT_TRUE(parse(parse_chat, head + right).ok());
}

TEST_F(Border, OnlyAnAssistantsTextCanBeContinued) {
  const auto last = [&](const std::string& message) {
    return parse(parse_chat,
                 R"({"continue_final_message":true,"messages":[{"role":"user","content":"Hi"},)" + message + "]}");
  };
  EXPECT_TRUE(last(R"({"role":"assistant","content":"One,","tool_calls":[],"refusal":null})").ok());
  EXPECT_EQ(last(R"({"role":"system","content":"x"})").status().field(), "continue_final_message");
  EXPECT_EQ(last(R"({"role":"assistant","content":"x","tool_calls":[{}]})").status().field(), "messages[1].tool_calls");
  EXPECT_EQ(last(R"({"role":"assistant","content":"x","reasoning_content":"y"})").status().field(),
            "messages[1].reasoning_content");
}

// A value that asks for more than is served is a 400 that names the field; the neutral value is not.
TEST_F(Border, WhatWouldChangeTheAnswerSilentlyIsRefusedByName) {
  enum Endpoint { kChat, kCompletion, kGenerate, kSampling };
  const struct {
    Endpoint endpoint;
    const char *field, *asks, *neutral;
  } lines[] = {
      {kChat, "functions", "[{}]", "[]"},
      {kChat, "best_of", "2", "1"},
      {kChat, "echo", "true", "false"},
      {kChat, "suffix", "\"x\"", "\"\""},
      {kChat, "chat_template", "\"{{ messages }}\"", "\"\""},
      {kChat, "add_generation_prompt", "false", "true"},
      {kChat, "json_schema", "\"{}\"", "null"},
      {kChat, "lora_path", "\"a\"", "\"\""},
      {kChat, "modalities", R"(["text","audio"])", R"(["text"])"},
      {kChat, "prompt", "\"x\"", "null"},
      {kCompletion, "structural_tag", "\"{}\"", "null"},
      {kCompletion, "tools", "[{}]", "[]"},
      {kCompletion, "functions", "[{}]", "null"},
      {kCompletion, "top_logprobs", "2", "0"},
      {kCompletion, "suffix", "\"x\"", "\"\""},
      {kCompletion, "messages", R"([{"role":"user"}])", "[]"},
      {kCompletion, "max_new_tokens", "3", "null"},
      {kGenerate, "token_ids_logprob", "[5]", "null"},
      {kGenerate, "image_data", "\"x\"", "null"},
      {kGenerate, "max_tokens", "3", "null"},
      {kSampling, "sampling_params.stop_regex", "\"a\"", "null"},
      {kSampling, "sampling_params.max_tokens", "3", "null"},
  };
  for (const auto& line : lines) {
    const auto send = [&](const std::string& value) {
      const std::string name = line.field;
      const std::string field = "\"" + name.substr(name.find('.') + 1) + "\":" + value;
      if (line.endpoint == kChat) return chat("," + field);
      if (line.endpoint == kCompletion) return completion("\"prompt\":\"x\"," + field);
      if (line.endpoint == kGenerate) return generate("\"text\":\"x\"," + field);
      return generate("\"text\":\"x\",\"sampling_params\":{" + field + "}");
    };
    const Status status = send(line.asks).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line.field;
    EXPECT_EQ(status.field(), line.field) << line.asks;
    EXPECT_THAT(status.message(), ::testing::AnyOf(::testing::HasSubstr("not supported yet: "),
                                                   ::testing::HasSubstr("is not a field of this endpoint; send")));
    EXPECT_TRUE(send(line.neutral).ok()) << line.field << send(line.neutral).status().to_string();
    EXPECT_TRUE(send("null").ok()) << line.field;
  }
  EXPECT_EQ(chat(R"(,"stream":true,"stream_options":{"continuous_usage_stats":true})").status().field(),
            "stream_options.continuous_usage_stats");
  EXPECT_THAT(chat(R"(,"best_of":2)").status().message(), ::testing::EndsWith("best_of other than 1"));
}

TEST_F(Border, BestOfMakesMoreChoicesThanItTells) {
  const auto call = completion(R"("prompt":["x","y"],"n":2,"best_of":3)");
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(call->members.size(), 6u);
  EXPECT_EQ(call->best, 2u);
  EXPECT_TRUE(call->only_ranked) << "log probabilities that nobody asked for aren't told";
  EXPECT_FALSE(completion(R"("prompt":"x","best_of":3,"logprobs":0)")->only_ranked);
  EXPECT_EQ(completion(R"("prompt":"x","n":2,"best_of":2,"stream":true)")->best, 0u);
  EXPECT_EQ(completion(R"("prompt":"x","n":2,"best_of":1)").status().field(), "best_of");
  EXPECT_EQ(completion(R"("prompt":"x","best_of":2,"stream":true)").status().field(), "best_of");
}

TEST_F(Border, FieldsThatAskForNothingAndUnknownFieldsNeverFail) {
  const auto call = chat(
      R"(,"n":1,"logprobs":false,"top_logprobs":null,"tools":[],"tool_choice":"none","response_format":{"type":"text"},
          "user":"u","lora_path":"","logit_bias":{},"stop":null,"max_tokens":null,"seed":null,"return_routed_experts":true,
          "no_such_field":{"deep":[1,2,{"x":null}]},"metadata":{"a":"b"},"service_tier":"auto","reasoning_effort":"low")");
  EXPECT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_TRUE(chat(R"(,"stop":[])").ok());
  EXPECT_TRUE(chat(R"(,"tools":[{"type":"function"}],"tool_choice":"none")").ok());
  EXPECT_EQ(chat(R"(,"tools":3,"tool_choice":"none")").status().field(), "tools");
  EXPECT_TRUE(generate(R"("text":"a","return_logprob":false,"logprob_start_len":-1,"image_data":null)").ok());
}

// Also in a field that nobody reads: the sentence says where to look.
TEST_F(Border, AValueThatIsNoJsonValueIsNamedByItsPath) {
  const Mistake mistakes[] = {
      {R"(,"seed":18446744073709551616)", {}, "seed", "does not fit in 64 bits"},
      {R"(,"metadata":{"a":[0,-9223372036854775809]})", {}, "metadata.a[1]", "-9223372036854775809"},
      {R"(,"temperature":1e999)", {}, "temperature", "out of range: 1e999"},
      {R"(,"stop":["a","\ud83d"])", {}, "stop[1]", "half of a surrogate pair"},
      {R"(,"user":"\ude00")", {}, "user", "half of a surrogate pair"},
      {R"(,"chat_template_kwargs":{"k":"\ud83dx"})", {}, "chat_template_kwargs.k", "half of a surrogate pair"},
      {R"(,"x":{"k\udc00":1})", {}, "x.k\\udc00", "half of a surrogate pair"},
      {",\"user\":\"\xff\"", {}, "user", "no UTF-8"},
      {",\"user\":\"a\nb\"", {}, "user", "control character"},
      {R"(,"user":"\q")", {}, "user", "bad escape"},
      {R"(,"top_k":01)", {}, "top_k", "is no number: 01"},
  };
  for (const Mistake& mistake : mistakes) {
    const Status status = chat(mistake.body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << mistake.body;
    EXPECT_EQ(status.field(), mistake.field) << mistake.body;
    EXPECT_THAT(status.message(), ::testing::HasSubstr(mistake.message_part)) << mistake.body;
  }
  EXPECT_TRUE(chat(R"(,"user":"\ud83d\ude00 \uD83D\uDE00 \\ud83d \ud7ff","seed":-9223372036854775808)").ok());
}

TEST_F(Border, BodiesMayNest64Levels) {
  const auto nested = [&](int levels) {  // of which the body's own object is one
    return parse(parse_chat, R"({"messages":[{"role":"user","content":"Hi"}],"metadata":)" +
                                 std::string(static_cast<std::size_t>(levels - 1), '[') + "1" +
                                 std::string(static_cast<std::size_t>(levels - 1), ']') + "}");
  };
  EXPECT_TRUE(nested(64).ok()) << nested(64).status().to_string();
  EXPECT_EQ(nested(65).status().field(), "metadata");
  EXPECT_EQ(nested(65).status().message(), "is nested deeper than 64 levels");
  EXPECT_EQ(parse(parse_chat, std::string(5'000'000, '[')).status().message(),
            "the request body is nested deeper than 64 levels");
  EXPECT_TRUE(chat("").ok()) << "the parser works after every failure";
}

TEST_F(Border, ABodyThatIsNotOneJsonObjectIsRefused) {
  std::string deep = "{\"messages\":";
  for (int i = 0; i < 5000; ++i) deep += "[";
  const std::string bodies[] = {"",           "nonsense",         "[1]",         "\"text\"",      "{\"a\":1",
                                "{\"a\":1}x", "{\"a\":\"\xff\"}", "{\"a\":NaN}", "{\"a\":1e999}", deep};
  for (const std::string& body : bodies) {
    const auto call = parse(parse_chat, body);
    ASSERT_FALSE(call.ok()) << body.substr(0, 40);
    EXPECT_EQ(http_status(call.status()), 400) << body.substr(0, 40);
  }
  EXPECT_TRUE(chat("").ok()) << "the parser works after every failure";
}

TEST_F(Border, PromptsOfAnyShapeAndTheirMistakes) {
  const Mistake mistakes[] = {
      {R"("x":1)", StatusCode::kInvalidArgument, "prompt", "missing"},
      {R"("prompt":"")", StatusCode::kInvalidArgument, "prompt", "empty"},
      {R"("prompt":[])", StatusCode::kInvalidArgument, "prompt", "empty"},
      {R"("prompt":[[]])", StatusCode::kInvalidArgument, "prompt[0]", "at least one token"},
      {R"("prompt":["a",""])", StatusCode::kInvalidArgument, "prompt[1]", "empty"},
      {R"("prompt":[999999])", StatusCode::kInvalidArgument, "prompt", "outside the vocabulary"},
      {R"("prompt":[5,-1])", StatusCode::kInvalidArgument, "prompt", "outside the vocabulary"},
      {R"("prompt":[1.5])", StatusCode::kInvalidArgument, "prompt", "integers"},
      {R"("prompt":[1,"a"])", StatusCode::kInvalidArgument, "prompt", "integers"},
      {R"("prompt":7)", StatusCode::kInvalidArgument, "prompt", "string or a list"},
      {R"("prompt":["1","2","3","4","5","6","7","8","9"])", StatusCode::kInvalidArgument, "prompt", "more than 8"},
  };
  for (const Mistake& mistake : mistakes) {
    const auto call = completion(mistake.body);
    ASSERT_FALSE(call.ok()) << mistake.body;
    EXPECT_EQ(call.status().field(), mistake.field) << mistake.body << call.status().to_string();
    EXPECT_THAT(call.status().message(), ::testing::HasSubstr(mistake.message_part)) << mistake.body;
  }
  EXPECT_EQ(completion(R"("prompt":"ab")").value().members.size(), 1u);
  EXPECT_EQ(completion(R"("prompt":["ab","cd"])").value().members.size(), 2u);
  EXPECT_EQ(completion(R"("prompt":[5,6,7])").value().members[0].request.prompt, (std::vector<core::Token>{5, 6, 7}));
  const CallSpec lists = completion(R"("prompt":[[5],[6,7]])").value();
  EXPECT_EQ(lists.members[1].request.prompt, (std::vector<core::Token>{6, 7}));
}

// Roles, names and unknown fields are no text, but the template engine is given them too.
TEST_F(Border, MessagesTooLargeForTheTemplateAre413BeforeItSeesThem) {
  const std::string filler(2 * model_.max_text_bytes + (64 << 10), 'x');
  const std::string head = R"({"messages":[{"role":"user","content":"Hi")";
  for (const std::string& body :
       {head + ",\"name\":\"" + filler + "\"}]}", head + "}],\"chat_template_kwargs\":{\"k\":\"" + filler + "\"}}"}) {
    const Status status = parse(parse_chat, body).status();
    EXPECT_EQ(http_status(status), 413);
    EXPECT_EQ(status.field(), "messages");
    EXPECT_THAT(status.message(), ::testing::HasSubstr("bytes of JSON"));
  }
}

TEST_F(Border, OverLongInputIs413WithTheNumbersOnEveryEndpoint) {
  std::string ids = "[1";
  for (int i = 1; i < 256; ++i) ids += ",1";
  ids += "]";
  const std::string expected = "The input (256 tokens) is longer than the model's context length (256 tokens).";
  for (const auto& call : {completion("\"prompt\":" + ids), generate("\"input_ids\":" + ids)}) {
    EXPECT_EQ(call.status().code(), StatusCode::kPayloadTooLarge);
    EXPECT_EQ(call.status().message(), expected);
    EXPECT_EQ(http_status(call.status()), 413);
  }
  const std::string huge(10 << 20, 'a');  // refused without being tokenized
  EXPECT_EQ(completion("\"prompt\":\"" + huge + "\"").status().code(), StatusCode::kPayloadTooLarge);
  EXPECT_EQ(parse(parse_chat, R"({"messages":[{"role":"user","content":")" + huge + "\"}]}").status().code(),
            StatusCode::kPayloadTooLarge);
  EXPECT_TRUE(completion("\"prompt\":" + ids.substr(0, ids.size() - 3) + "],\"max_tokens\":1").ok());
}

TEST_F(Border, ChatPromptIsTheRenderedTemplateTokenizedWithItsOwnSpecialTokens) {
  const CallSpec call = parse(parse_chat, R"({"messages":[
      {"role":"developer","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"Say"},{"type":"text","text":"hi"}]},
      {"role":"assistant","content":null,"tool_calls":[]},
      {"role":"user","content":"again"}]})")
                            .value();
  const std::string expected =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay hi<|im_end|>\n"
      "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(text::decoded(test_tokenizer(), call.members[0].request.prompt, false), expected);
}

TEST_F(Border, ContinuedMessageEndsThePromptWithItsOwnText) {
  const CallSpec call = parse(parse_chat, R"({"continue_final_message":true,"messages":[
      {"role":"user","content":"Count"},{"role":"assistant","content":"One, two,"}]})")
                            .value();
  EXPECT_THAT(text::decoded(test_tokenizer(), call.members[0].request.prompt, false),
              ::testing::EndsWith("<|im_start|>assistant\nOne, two,"));
}

TEST_F(Border, LimitsComeFromTheNewerNameOrTheEndpointsDefault) {
  const auto max_of = [](const Result<CallSpec>& call) {
    return call.value().members[0].request.sampling.max_new_tokens;
  };
  EXPECT_EQ(max_of(chat(R"(,"max_tokens":9)")), 9);
  EXPECT_EQ(max_of(chat(R"(,"max_tokens":9,"max_completion_tokens":5)")), 5);
  EXPECT_EQ(max_of(chat(R"(,"max_tokens":3.0)")), 3);
  const CallSpec rest = chat("").value();
  EXPECT_EQ(rest.members[0].request.sampling.max_new_tokens,
            256 - static_cast<int>(rest.members[0].request.prompt.size()));
  EXPECT_EQ(max_of(completion(R"("prompt":[1])")), 16);
  EXPECT_EQ(max_of(generate(R"("input_ids":[1])")), 128);
  EXPECT_EQ(max_of(generate(R"("input_ids":[1],"sampling_params":{"max_new_tokens":4})")), 4);
}

TEST_F(Border, SamplingReachesTheRequestAsGiven) {
  const core::SamplingParams sampling =
      chat(R"(,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"frequency_penalty":0.5,"presence_penalty":-0.5,
             "repetition_penalty":1.1,"seed":-1,"max_tokens":20,"min_tokens":2,"ignore_eos":true,"stop":["x","yz"],
             "stop_token_ids":[3,4],"skip_special_tokens":false,"no_stop_trim":true)")
          .value()
          .members[0]
          .request.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 0.5f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, -0.5f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(sampling.min_new_tokens, 2);
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(sampling.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(sampling.stop_token_ids, (std::vector<core::Token>{3, 4}));
  EXPECT_FALSE(sampling.skip_special_tokens);
  EXPECT_TRUE(sampling.no_stop_trim);
  EXPECT_TRUE(chat(R"(,"temperature":1e-9)").value().members[0].request.sampling.greedy());
}

TEST_F(Border, CacheKeysStayApartAndAbsentIsNotEmpty) {
  const auto lists = generate(R"("input_ids":[[1],[2],[3]],"extra_key":["a",null,"b"])").value();
  EXPECT_EQ(lists.members[0].request.cache_namespace.extra_key, "a");
  EXPECT_FALSE(lists.members[1].request.cache_namespace.extra_key.has_value());
  EXPECT_EQ(lists.members[2].request.cache_namespace.extra_key, "b");
  EXPECT_EQ(generate(R"("input_ids":[[1],[2]],"extra_key":["a"])").status().field(), "extra_key");
  EXPECT_EQ(generate(R"("input_ids":[[1],[2]],"extra_key":["a",5])").status().field(), "extra_key[1]");
  const auto key = [](const Result<CallSpec>& call) { return call.value().members[0].request.cache_namespace; };
  EXPECT_EQ(key(chat(R"(,"extra_key":"c","cache_salt":"ab")")), (core::CacheNamespace{"c", "ab"}));
  EXPECT_NE(key(chat(R"(,"extra_key":"bc","cache_salt":"a")")), key(chat(R"(,"extra_key":"c","cache_salt":"ab")")));
  EXPECT_NE(key(chat(R"(,"extra_key":"")")), key(chat("")));
}

TEST_F(Border, MembersOfAnUnseededBatchGetSeedsOfTheirOwn) {
  const CallSpec unseeded = completion(R"("prompt":["a","a","a"])").value();
  std::set<std::uint64_t> seeds;
  for (const Member& member : unseeded.members) seeds.insert(member.request.sampling.seed);
  EXPECT_EQ(seeds.size(), 3u);
  const CallSpec seeded = completion(R"("prompt":["a","a"],"seed":5)").value();
  for (const Member& member : seeded.members) {
    EXPECT_EQ(member.request.sampling.seed, 5u);
  }
}

TEST_F(Border, EachChoiceIsARequestOfItsOwnWithTheNextSeed) {
  const CallSpec call = completion(R"("prompt":["a","b"],"n":3,"seed":5,"rid":"r")").value();
  ASSERT_EQ(call.members.size(), 6u);
  EXPECT_EQ(call.choices, 3u);
  EXPECT_EQ(call.members[2].request.sampling.seed, 7u);
  EXPECT_EQ(call.members[2].request.prompt, call.members[0].request.prompt);
  EXPECT_EQ(call.members[3].request.sampling.seed, 5u);
  EXPECT_EQ(call.members[5].rid, "r");
  const CallSpec native = generate(R"("text":"a","rid":"r","sampling_params":{"n":2})").value();
  EXPECT_TRUE(native.batch);
  EXPECT_EQ(native.members[1].rid, "r_1");
  EXPECT_EQ(native.members[1].group, "r");
  EXPECT_EQ(chat(R"(,"n":0)").status().field(), "n");
  EXPECT_EQ(chat(R"(,"n":129)").status().field(), "n");
  EXPECT_THAT(chat(R"(,"n":9)").status().message(), ::testing::HasSubstr("prompts times n may be at most 8"));
  EXPECT_EQ(generate(R"("text":["a","b"],"sampling_params":[{"n":2},{}])").status().field(), "sampling_params.n");
}

TEST_F(Border, LogProbabilitiesAreAskedForInEachDialectsWay) {
  const auto of = [](const Result<CallSpec>& call) { return call.value().members[0].request.logprobs; };
  EXPECT_FALSE(of(chat("")));
  EXPECT_EQ(of(chat(R"(,"logprobs":true)"))->top, 0);
  EXPECT_EQ(of(chat(R"(,"logprobs":true,"top_logprobs":20)"))->top, 20);
  EXPECT_EQ(chat(R"(,"logprobs":true,"top_logprobs":21)").status().field(), "top_logprobs");
  EXPECT_EQ(chat(R"(,"top_logprobs":1)").status().field(), "top_logprobs");
  EXPECT_EQ(of(completion(R"("prompt":"x","logprobs":0)"))->top, 0);  // not the same as none
  EXPECT_EQ(completion(R"("prompt":"x","logprobs":6)").status().field(), "logprobs");
  EXPECT_EQ(of(completion(R"("prompt":"x y","logprobs":1,"echo":true)"))->prompt_from, 0);
  EXPECT_EQ(completion(R"("prompt":"x","echo":true,"max_tokens":0)").value().members[0].request.sampling.max_new_tokens,
            0);
  EXPECT_EQ(completion(R"("prompt":"x","max_tokens":0)").status().field(), "max_tokens");
  const auto native = [&](const std::string& fields) { return of(generate("\"input_ids\":[1,2,3]," + fields)); };
  EXPECT_EQ(native(R"("return_logprob":true)")->prompt_from, 2);  // the last one, of which nothing is known
  EXPECT_EQ(native(R"("return_logprob":true,"logprob_start_len":1,"top_logprobs_num":4)")->top, 4);
  EXPECT_FALSE(native(R"("return_logprob":false,"logprob_start_len":1)"));
  EXPECT_EQ(generate(R"("input_ids":[1],"return_logprob":true,"logprob_start_len":2)").status().field(),
            "logprob_start_len");
  EXPECT_EQ(generate(R"("input_ids":[1],"return_logprob":1)").status().field(), "return_logprob");
  const CallSpec each = generate(R"("input_ids":[[1],[2]],"return_logprob":[false,true])").value();
  EXPECT_FALSE(each.members[0].request.logprobs);
  EXPECT_TRUE(each.members[1].request.logprobs);
}

TEST_F(Border, LogitBiasIsAnObjectOfIdsAndNumbers) {
  const auto biases = chat(R"(,"logit_bias":{"5":-100,"7":1.5})").value().members[0].request.sampling.logit_bias;
  ASSERT_EQ(biases.size(), 2u);
  EXPECT_EQ(biases[0].token, 5);
  EXPECT_EQ(biases[1].bias, 1.5f);
  for (const char* wrong : {"3", "[]", R"({"x":1})", R"({"-1":1})", R"({"999999":1})", R"({"5":101})", R"({"5":"1"})",
                            R"({"5":1,"05":2})", R"({"5 ":1})", R"({"":1})"}) {
    EXPECT_EQ(chat(std::string(",\"logit_bias\":") + wrong).status().field(), "logit_bias") << wrong;
  }
  EXPECT_EQ(generate(R"("text":"a","sampling_params":{"logit_bias":{"x":1}})").status().field(),
            "sampling_params.logit_bias");
}

TEST_F(Border, GenerateTakesTextOrIdsOneOrManyWithParametersForAllOrEach) {
  EXPECT_EQ(generate(R"("text":"a","input_ids":[1])").status().field(), "input_ids");
  EXPECT_EQ(generate(R"("x":1)").status().field(), "text");
  EXPECT_EQ(generate(R"("text":"a","sampling_params":3)").status().field(), "sampling_params");
  EXPECT_EQ(generate(R"("text":"a","sampling_params":{"max_new_tokens":-1})").status().field(),
            "sampling_params.max_new_tokens");
  EXPECT_EQ(generate(R"("text":["a","b"],"sampling_params":[{},{"top_p":2}])").status().field(),
            "sampling_params[1].top_p");
  EXPECT_EQ(generate(R"("text":"a","sampling_params":{"max_new_tokens":2,"min_new_tokens":3})").status().field(),
            "sampling_params.min_new_tokens");
  EXPECT_FALSE(generate(R"("text":"a")").value().batch);
  EXPECT_TRUE(generate(R"("text":["a"])").value().batch);
  const CallSpec each =
      generate(R"("input_ids":[[1],[2]],"sampling_params":[{"max_new_tokens":3},{"temperature":0}],"rid":["p","q"])")
          .value();
  EXPECT_EQ(each.members[0].request.sampling.max_new_tokens, 3);
  EXPECT_EQ(each.members[1].request.sampling.temperature, 0.0f);
  EXPECT_EQ(each.members[1].rid, "q");
  EXPECT_EQ(generate(R"("text":["a","b"],"sampling_params":[{}])").status().field(), "sampling_params");
  EXPECT_EQ(generate(R"("text":["a","b"],"rid":["x","x"])").status().field(), "rid");
  EXPECT_EQ(generate(R"("text":["a","b"],"rid":"x")").status().field(), "rid");
  EXPECT_EQ(generate(R"("text":["a","b"],"rid":["x"])").status().field(), "rid");
}

TEST_F(Border, DamagedBodiesAreRefusedOrReadButNeverEndTheProcess) {
  const std::string bodies[] = {
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a\u00e9"}]}],"stop":["x"],"max_tokens":3})",
      R"({"prompt":[[1,2],[3]],"temperature":0.5,"stop_token_ids":[1],"seed":7,"stream_options":{"include_usage":true}})",
      R"({"text":["a","b"],"sampling_params":[{"max_new_tokens":2},{"top_k":3}],"rid":["p","q"]})"};
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string body = bodies[i % 3];
    for (int change = 0; change < 1 + i % 4; ++change) {
      const std::size_t at = random() % body.size();
      switch (random() % 3) {
        case 0: body[at] = static_cast<char>(random()); break;
        case 1: body.erase(at, 1 + random() % 4); break;
        default: body.insert(at, 1, "\"[]{},:0-e\\"[random() % 12]);
      }
      if (body.empty()) body = "{";
    }
    const Parse parsers[] = {parse_chat, parse_completion, parse_generate};
    const Result<CallSpec> call = parse(parsers[i % 3], body);
    if (!call.ok()) {
      EXPECT_THAT(http_status(call.status()), ::testing::AnyOf(400, 404, 413)) << body;
    }
  }
}

}  // namespace
}  // namespace levada::serve
