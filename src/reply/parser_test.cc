// What an answer's text means, whole and in any pieces.
#include "reply/parser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace levada::reply {
namespace {

using Kind = Piece::Kind;

Piece content(std::string text) { return {Kind::kContent, std::move(text), {}}; }
Piece reasoning(std::string text) { return {Kind::kReasoning, std::move(text), {}}; }
Piece call(std::string name, std::string arguments) { return {Kind::kCall, std::move(arguments), std::move(name)}; }

Form form_of(CallFormat format) {
  Form form;
  form.calls = format;
  form.tools = {{"weather", {"city"}}, {"now", {}}};
  return form;
}

Form thinking(bool open) {
  Form form;
  form.reasoning = ReasoningTags{"<think>", "</think>"};
  form.reasoning_open = open;
  return form;
}

Pieces read(const Form& form, const std::vector<std::string>& chunks) {
  Parser parser(form);
  Pieces all;
  const auto add = [&](const Pieces& fresh) {
    for (const Piece& piece : fresh) {
      if (piece.kind == Kind::kCall) {
        all.push_back(piece);
      } else {
        append_text(all, piece.kind, piece.text);
      }
    }
  };
  for (const std::string& chunk : chunks) {
    Pieces fresh;
    parser.push(chunk, fresh);
    add(fresh);
  }
  Pieces rest;
  parser.finish(rest);
  add(rest);
  return all;
}

Pieces read(const Form& form, const std::string& text) { return read(form, std::vector<std::string>{text}); }

// --- Hermes.

TEST(Hermes, ReadsCallsAmongText) {
  const Form form = form_of(CallFormat::kHermes);
  EXPECT_EQ(
      read(form,
           "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Graz\", \"d\": [1, 2.50]}}"
           "\n</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>"),
      (Pieces{content("Let me look."), call("weather", R"({"city":"Graz","d":[1,2.5]})"), call("now", "{}")}));
  EXPECT_EQ(read(form, "<tool_call>{\"name\":\"now\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call> Done.\n"),
            (Pieces{call("now", R"({"a":1})"), content("Done.\n")}));
}

TEST(Hermes, TextsMayHoldTheTags) {
  EXPECT_EQ(read(form_of(CallFormat::kHermes),
                 R"(<tool_call>{"name":"weather","arguments":{"city":"a</tool_call>\"</tool_call>"}}</tool_call>)"),
            (Pieces{call("weather", R"({"city":"a</tool_call>\"</tool_call>"})")}));
}

TEST(Hermes, WhatIsNoCallStaysText) {
  const Form form = form_of(CallFormat::kHermes);
  for (const char* text : {
           "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Gr",  // cut by its limit
           "<tool_call>{\"name\":\"unknown\",\"arguments\":{}}</tool_call>",
           "<tool_call>{\"name\":\"now\",\"arguments\":[]}</tool_call>",
           "<tool_call>now()</tool_call>",
           "<tool_cal",
           "a < b and <tool_calls>",
           "  leading and trailing blanks \n",
       }) {
    EXPECT_EQ(read(form, text), Pieces{content(text)}) << text;
  }
  const std::string deep = "<tool_call>{\"name\":\"now\",\"arguments\":" + std::string(100'000, '[');
  EXPECT_EQ(read(form, deep + "</tool_call>"), Pieces{content(deep + "</tool_call>")});
}

// --- Llama 3.

TEST(Llama3, ReadsBareObjectsFirstInTheAnswer) {
  const Form form = form_of(CallFormat::kLlama3);
  const Pieces one{call("weather", R"({"city":"Graz"})")};
  EXPECT_EQ(read(form, R"({"name": "weather", "parameters": {"city": "Graz"}})"), one);
  EXPECT_EQ(read(form, R"(<|python_tag|>{"name": "weather", "parameters": {"city": "Graz"}})"), one);
  EXPECT_EQ(read(form, R"({"name": "weather", "parameters": {"city": "}"}}; {"name": "now", "parameters": {}})"),
            (Pieces{call("weather", R"({"city":"}"})"), call("now", "{}")}));
  EXPECT_EQ(read(form, R"(I look.<|python_tag|>{"name": "now", "parameters": {}})"),
            (Pieces{content("I look."), call("now", "{}")}));
}

TEST(Llama3, WhatIsNoCallStaysText) {
  const Form form = form_of(CallFormat::kLlama3);
  for (const char* text : {
           R"({"answer": 42})",
           R"({"name": "weather", "parameters": {"city": "Gr)",
           R"(Use {"name": "now", "parameters": {}} like this)",
           "<|python_tag|>print(1)",
           "<|python",
           "\n\n{",
       }) {
    EXPECT_EQ(read(form, text), Pieces{content(text)}) << text;
  }
}

// --- GLM.

TEST(Glm, ReadsKeysAndValues) {
  const Form form = form_of(CallFormat::kGlm);
  EXPECT_EQ(read(form,
                 "Sure.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value> 12 </arg_value>\n"
                 "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>units</arg_key>"
                 "<arg_value>[\"C\"]</arg_value>\n<arg_key>note</arg_key><arg_value>a </tool_call> "
                 "b</arg_value>\n</tool_call>"),
            (Pieces{content("Sure."),
                    call("weather", R"({"city":" 12 ","days":3,"units":["C"],"note":"a </tool_call> b"})")}));
  EXPECT_EQ(read(form, "<tool_call>now</tool_call>"), (Pieces{call("now", "{}")}));
}

TEST(Glm, WhatIsNoCallStaysText) {
  const Form form = form_of(CallFormat::kGlm);
  for (const char* text : {"<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Gr", "<tool_call>other</tool_call>",
                           "<tool_call>weather\n<arg_key>city</tool_call>"}) {
    EXPECT_EQ(read(form, text), Pieces{content(text)}) << text;
  }
}

// --- Reasoning.

TEST(Reasoning, EndsWithItsTag) {
  EXPECT_EQ(read(thinking(false), "<think>\nHm, 2 < 3.\n</think>\n\nThree."),
            (Pieces{reasoning("Hm, 2 < 3."), content("Three.")}));
  EXPECT_EQ(read(thinking(true), "Hm.\n</think>\n\nThree. </think>"),
            (Pieces{reasoning("Hm."), content("Three. </think>")}));
  EXPECT_EQ(read(thinking(true), "<think>Hm.</think>Three."), (Pieces{reasoning("Hm."), content("Three.")}));
  EXPECT_EQ(read(thinking(false), "Three."), (Pieces{content("Three.")})) << "it did not think";
  EXPECT_EQ(read(thinking(true), "Hm, still "), (Pieces{reasoning("Hm, still ")})) << "cut by its limit";
  EXPECT_EQ(read(thinking(false), "<think></think>Three."), (Pieces{content("Three.")}));
}

TEST(Reasoning, CallsInsideItAreReasoning) {
  Form form = form_of(CallFormat::kHermes);
  form.reasoning = ReasoningTags{"<think>", "</think>"};
  EXPECT_EQ(
      read(form, "<think><tool_call>{\"name\":\"now\"}</tool_call></think>\n<tool_call>{\"name\":\"now\"}</tool_call>"),
      (Pieces{reasoning("<tool_call>{\"name\":\"now\"}</tool_call>"), call("now", "{}")}));
}

// --- Any text, in any pieces.

rc::Gen<std::string> fragments() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
          "<tool_call>", "</tool_call>", "<think>", "</think>", "{\"name\":\"now\",\"arguments\":{}}", "<|python_tag|>",
          "{\"name\":\"weather\",\"parameters\":{\"city\":\"é}\\\"\"}}", "weather", "now", "<arg_key>city</arg_key>",
          "<arg_value>x</arg_value>", " ", "\n", "text", "<", "\"", "{", "}", ";", "<arg_value>", "</arg_key>")),
      [](const std::vector<std::string>& parts) {
        std::string text;
        for (const std::string& part : parts) text += part;
        return text;
      });
}

std::vector<std::string> cut(const std::string& text) {
  std::vector<std::string> chunks;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = *rc::gen::inRange<std::size_t>(1, 9);
    chunks.push_back(text.substr(at, size));
    at += size;
  }
  return chunks;
}

std::vector<Form> all_forms() {
  std::vector<Form> forms;
  for (const CallFormat format : {CallFormat::kHermes, CallFormat::kLlama3, CallFormat::kGlm}) {
    forms.push_back(form_of(format));
    forms.push_back(form_of(format));
    forms.back().reasoning = ReasoningTags{"<think>", "</think>"};
    forms.back().reasoning_open = format == CallFormat::kGlm;
  }
  forms.push_back(thinking(true));
  return forms;
}

RC_GTEST_PROP(AnyText, MeansTheSameInAnyPieces, ()) {
  const std::string text = *fragments();
  for (const Form& form : all_forms()) RC_ASSERT(read(form, cut(text)) == read(form, text));
}

// Letters are in no syntax but names, keys and tags; those of plain words must all come out again.
RC_GTEST_PROP(AnyText, LosesNoWord, ()) {
  const std::string text = *fragments();
  const auto count = [](const std::string& in) {
    std::size_t words = 0;
    for (std::size_t at = in.find("text"); at != std::string::npos; at = in.find("text", at + 1)) ++words;
    return words;
  };
  for (const Form& form : all_forms()) {
    std::string told;
    for (const Piece& piece : read(form, text)) told += piece.name + piece.text + "|";
    RC_ASSERT(count(told) == count(text));
  }
}

}  // namespace
}  // namespace levada::reply
