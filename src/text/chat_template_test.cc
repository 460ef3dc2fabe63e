#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace levada::text {
namespace {

using nlohmann::json;

const std::string kVectors = std::string(LEVADA_SOURCE_DIR) + "/tests/vectors";

std::unique_ptr<ChatTemplate> parse(const std::string& source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? std::move(parsed).value() : nullptr;
}

TEST(ChatTemplate, RendersSmolLm2ConversationsAsHuggingFaceDoes) {
  const json config = json::parse(std::ifstream(kVectors + "/smollm2_tokenizer/tokenizer_config.json"));
  const json golden = json::parse(std::ifstream(kVectors + "/smollm2_golden.json"));
  const auto chat = parse(config["chat_template"]);
  ASSERT_EQ(golden["chat"].size(), 12u);
  for (const json& sample : golden["chat"]) {
    const json inputs = {{"messages", sample["messages"]}, {"add_generation_prompt", sample["add_generation_prompt"]}};
    const auto text = chat->render(inputs.dump());
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(*text, sample["text"].get<std::string>());
  }
}

std::string rendered(const std::string& source, const json& inputs = json::object()) {
  const auto text = parse(source)->render(inputs.dump());
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : "";
}

TEST(ChatTemplate, RaiseExceptionCarriesTheTemplatesOwnText) {
  const auto text = parse("{{ raise_exception('Roles must alternate') }}")->render("{}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(text.status().message(), "Roles must alternate");
}

TEST(ChatTemplate, InputsDoNotReplaceFunctions) {
  const json inputs = {{"range", 5}, {"raise_exception", "mine"}, {"strftime_now", nullptr}};
  EXPECT_EQ(rendered("{% for i in range(3) %}{{ i }}{% endfor %}", inputs), "012");
  EXPECT_FALSE(parse("{{ raise_exception('no') }}")->render(inputs.dump()).ok());
}

TEST(ChatTemplate, RangeCountsAsPythonDoes) {
  EXPECT_EQ(rendered("{{ range(3) | list }}"), "012");
  EXPECT_EQ(rendered("{{ range(1, 8, 3) | list }}"), "147");
  EXPECT_EQ(rendered("{{ range(3, 0, -2) | list }}"), "31");
  EXPECT_EQ(rendered("{{ range(3, 0) | list }}"), "");
}

TEST(ChatTemplate, TrimsBlocksAsHuggingFaceDoes) {
  EXPECT_EQ(rendered("a\n  {% if true %}\nb\n  {% endif %}\nc"), "a\nb\nc");
  EXPECT_EQ(rendered("{% if true %}\r\nb\r\n{% endif %}\r\nc"), "b\nc");
}

TEST(ChatTemplate, KnowsTojsonAndStrftimeNow) {
  EXPECT_EQ(rendered("{{ t | tojson }}", {{"t", {{"b", 1}, {"a", {"x", nullptr}}}}}), R"({"a": ["x", null], "b": 1})");
  EXPECT_EQ(rendered("{{ strftime_now('%Y') | length }}"), "4");
}

TEST(ChatTemplate, RendersFromManyThreadsAtOnce) {
  const auto chat = parse("{% for m in messages %}{{ m.content | trim }}{{ strftime_now('%d') }};{% endfor %}");
  const std::string inputs = R"({"messages":[{"content":" a "},{"content":"b"}]})";
  const std::string expected = chat->render(inputs).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) wrong += chat->render(inputs).value() != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// As in Jinja2: a loop sees what is around it, its own assignments end with it, and `loop` is its own.
TEST(ChatTemplate, AScopeSeesTheOneAroundItAndLeavesItAsItWas) {
  EXPECT_EQ(rendered("{% set x = 'a' %}{% for i in [1] %}{{ x }}{% set x = 'b' %}{{ x }}{% endfor %}{{ x }}"), "aba");
  EXPECT_EQ(rendered("{% for i in [1, 2] %}{% for j in [3] %}{{ loop.length }}{{ i }}{{ j }}{% endfor %}"
                     "{{ loop.index }} {% endfor %}{{ i is defined }}"),
            "1131 1232 False");
  EXPECT_EQ(
      rendered("{% set x = 'a' %}{% macro m(x) %}{{ x }}{{ y }}{% endmacro %}{% set y = 'z' %}{{ m('b') }}{{ x }}"),
      "bza");
}

}  // namespace
}  // namespace levada::text
