// What a template or a message can do to the process: nothing. Each template here hung or crashed an unbounded engine.
#include <gtest/gtest.h>

#include <string>

#include "support/instrumented.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace levada::text {
namespace {

class TemplateLimits : public testing::Test {
 protected:
  void SetUp() override {
    if (test::kRacesOnly) GTEST_SKIP() << "millions of steps in one thread";
  }
};

Result<std::string> render(const std::string& source, const std::string& inputs = "{}") {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.status();
  return (*parsed)->render(inputs);
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void expect_limit(const std::string& source, const std::string& named, const std::string& inputs = "{}") {
  const auto text = render(source, inputs);
  ASSERT_FALSE(text.ok()) << source.substr(0, 200);
  EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(text.status().message().find(named), std::string::npos) << text.status().to_string();
}

TEST_F(TemplateLimits, LoopsEndAtTheStepLimit) {
  expect_limit("{% for i in range(1000000000000) %}x{% endfor %}", "limit on steps");
  expect_limit("{% for i in range(9000) %}{% for j in range(9000) %}x{% endfor %}{% endfor %}", "limit on");
}

TEST_F(TemplateLimits, RecursionEndsAtTheDepthLimit) {
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "limit on nesting depth");
}

// Each block that is called keeps the scope it was written in, and here each is written in the one before.
TEST_F(TemplateLimits, ScopesThatHoldEachOtherInALongChainEndAtTheStepLimit) {
  expect_limit(
      "{% set ns = namespace(f=0) %}{% macro keep() %}{% set ns.f = caller %}{% endmacro %}"
      "{% macro next() %}{% call keep() %}{{ next() }}{% endcall %}{% endmacro %}"
      "{{ next() }}{% for i in range(1000000) %}{{ ns.f() }}{% endfor %}",
      "limit on steps");
}

TEST_F(TemplateLimits, ValuesThatHoldThemselvesEndAtTheDepthLimit) {
  expect_limit("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns | tojson }}", "limit on nesting depth");
  expect_limit("{% set a = [] %}{% set b = a.append(a) %}{{ a }}", "limit on nesting depth");
  expect_limit("{% set a = [] %}{% set b = a.append(a) %}{{ a | string }}", "limit on nesting depth");
}

// The engine counts references; the leak checker of the sanitizer suite is what fails if a cycle stays.
TEST_F(TemplateLimits, ValuesThatHoldThemselvesAreLetGoAfterTheRender) {
  const char* cycles[] = {
      "{% set ns = namespace() %}{% set ns.a = ns %}",
      "{% set a = [] %}{% set b = [a] %}{% set c = a.append(b) %}",
      "{% set ns = namespace() %}{% set ns.f = ns.items %}",
      "{% set a = [1, [2]] %}{% set d = {'x': a} %}{% set c = a.append(d) %}",
      "{% set ns = namespace() %}{% macro m() %}{{ caller() }}{% endmacro %}"
      "{% call m() %}{% set ns.self = ns %}{% endcall %}",
  };
  for (const char* cycle : cycles) {
    const auto text = render(std::string(cycle) + "done");
    EXPECT_EQ(text.ok() ? text.value() : text.status().to_string(), "done") << cycle;
  }
  // Half made when a limit ends it.
  expect_limit("{% set a = [] %}{% set b = a.append(a) %}{% for i in range(9000000) %}{{ i }}{% endfor %}", "limit on");
}

TEST_F(TemplateLimits, DeepSourceIsRefused) {
  for (const char* opening : {"(", "[", "not ", "{'a':", "-", "f("}) {
    expect_limit("{{ " + repeated(opening, 50000 / static_cast<int>(std::string(opening).size())), "");
  }
  expect_limit("{{ 1" + repeated("+1", 20000) + " }}", "tokens");
  expect_limit("{{ a" + repeated("|upper", 20000) + " }}", "tokens");
  expect_limit("{{ a" + repeated(".b", 20000) + " }}", "tokens");
  expect_limit(repeated("{% if a %}", 20000), "");
  expect_limit("{% if a %}" + repeated("{% elif b %}", 15000) + "{% endif %}", "");
  expect_limit(std::string(300'000, 'x'), "262144");
  EXPECT_EQ(render("{{ 1" + repeated("+1", 200) + " }}").value(), "201");
}

TEST_F(TemplateLimits, AListSharedAtEveryLevelIsRefusedNotUnfolded) {
  expect_limit(
      "{% set ns = namespace(a=[]) %}{% for i in range(5000) %}{% set ns.a = [ns.a, ns.a, ns.a] %}{% endfor %}{{ ns.a "
      "}}",
      "limit on");
}

TEST_F(TemplateLimits, DeepValuesAreDestroyedWithoutRecursion) {
  expect_limit(
      "{% set ns = namespace(a=[]) %}{% for i in range(300000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
      "limit on");
}

TEST_F(TemplateLimits, GrowingTextEndsAtTheByteLimit) {
  expect_limit("{{ 'x' * 1000000000000 }}", "limit on bytes");
  expect_limit("{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
               "limit on bytes");
  expect_limit("{% set s = 'x' * 100000 %}{{ s.replace('x', s) }}", "limit on bytes");
  expect_limit("{% set s = 'x' * 100000 %}{{ s.replace('', s) }}", "limit on bytes");
  expect_limit("{{ [1, 2] | tojson(indent=2000000000) }}", "limit on bytes");
  expect_limit("{{ 'a\nb' | indent(2000000000) }}", "limit on bytes");
  expect_limit("{{ 'a\nb' | indent(-1) }}", "limit on bytes");
}

TEST_F(TemplateLimits, GrowingListsEndAtALimit) {
  expect_limit("{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
               "limit on steps");
  // A list that holds itself twice, forty levels up: small, but endless to walk.
  expect_limit(
      "{% set ns = namespace(a=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
      "limit on");
}

TEST_F(TemplateLimits, ArithmeticNeverTraps) {
  expect_limit("{{ 1 is divisibleby(0) }}", "division by zero");
  EXPECT_TRUE(render("{{ (-9223372036854775807 - 1) is divisibleby(-1) }}").ok());
  EXPECT_TRUE(render("{{ 1 % 0 }}{{ 1 / 0 }}{{ 9223372036854775807 + 1 }}").ok());
  expect_limit("{{ range(1, 2, 0) }}", "step");
}

TEST_F(TemplateLimits, AnInconsistentOrderDoesNotLeaveTheList) {
  std::string list;
  for (int i = 0; i < 400; ++i)
    list += i % 3 == 0 ? "'" + std::to_string(i * 7 % 100) + "'," : std::to_string(i * 13 % 100) + ",";
  EXPECT_TRUE(render("{{ ([" + list + "] | sort) | length }}").ok());
}

TEST_F(TemplateLimits, DamagedSourceIsAnError) {
  for (const char* source : {"{{",
                             "{%",
                             "{#",
                             "{{ a",
                             "{% if %}",
                             "{% for x %}{% endfor %}",
                             "{% endfor %}",
                             "{{ 'a",
                             "{{ 'a\\",
                             "{% macro 1() %}{% endmacro %}{{ 1() }}",
                             "{{ 99999999999999999999 }}",
                             "{% nonsense %}",
                             "{{ f(*a) }}",
                             "{% set 1 = 2 %}",
                             "{% break %}",
                             "{{ }}",
                             "{% set a, b = [1] %}",
                             "{{ a[ }}",
                             "{{ -",
                             "{%-"}) {
    EXPECT_FALSE(render(source).ok()) << source;
  }
}

TEST_F(TemplateLimits, DamagedInputsAreAnError) {
  for (const char* inputs : {"", "[]", "null", "{", "{\"a\":}", "{\"a\": \"\xFF\"}"})
    EXPECT_FALSE(render("x", inputs).ok()) << inputs;
  expect_limit("x", "nested deeper than 128", "{\"a\":" + std::string(100'000, '['));
  expect_limit("x", "nested deeper than 128", "{\"a\":" + std::string(200, '[') + std::string(200, ']') + "}");
}

TEST_F(TemplateLimits, ALongMessageCostsLinearTime) {
  const std::string content = repeated("</think>\\n", 100'000);
  const auto text = render("{{ m.replace('\\n', '\\n\\n') }}{{ m.split('</think>')[-1] }}{{ 'zzz' in m }}",
                           "{\"m\":\"" + content + "\"}");
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_GT(text->size(), 1'000'000u);
}

TEST_F(TemplateLimits, ALongConversationFits) {
  std::string messages;
  for (int i = 0; i < 3000; ++i)
    messages += std::string(i > 0 ? "," : "") + R"({"role":"user","content":"What is the capital of France?"})";
  const auto text = render(
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ 'S' }}{% endif %}"
      "{{'<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n'}}{% endfor %}",
      "{\"messages\":[" + messages + "]}");
  ASSERT_TRUE(text.ok()) << text.status().to_string();
}

TEST_F(TemplateLimits, WhatATemplateCutsInsideACharacterIsStillValidUtf8) {
  const auto text = render("{{ s[0] }}{{ s[1:] }}", "{\"s\":\"\xC3\xA9\xC3\xA9\"}");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(find_invalid_utf8(*text), std::string::npos);
}

}  // namespace
}  // namespace levada::text
