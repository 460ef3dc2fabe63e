// What a schema, a regular expression and a grammar allow; what is refused, and that refusing is cheap.
#include "grammar/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <thread>

#include "grammar/vocabulary_test.h"
#include "support/instrumented.h"

namespace levada::grammar {
namespace {

using Kind = Source::Kind;
using testing::HasSubstr;

TEST(Schema, AllowsWhatItDescribesAndNothingElse) {
  const auto grammar = compiled(Kind::kJsonSchema, R"({"type": "object", "required": ["name", "age"],
      "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}})");
  EXPECT_TRUE(matches(grammar, R"({"name": "Ada", "age": 36})"));
  EXPECT_TRUE(matches(grammar, "{\n  \"name\": \"Ada \\u00e9 €\",\n  \"age\": -1\n}"));
  EXPECT_FALSE(matches(grammar, R"({"name": "Ada"})")) << "age is required";
  EXPECT_FALSE(matches(grammar, R"({"name": "Ada", "age": "36"})")) << "age is no text";
  EXPECT_FALSE(matches(grammar, R"({"name": "Ada", "age": 36, "more": 1})")) << "more is not named";
  EXPECT_FALSE(matches(grammar, R"(Sure: {"name": "Ada", "age": 36})"));
}

TEST(Schema, ObjectAloneIsAnyObject) {
  const auto grammar = compiled(Kind::kJsonSchema, R"({"type": "object"})");
  EXPECT_TRUE(matches(grammar, "{}"));
  EXPECT_TRUE(matches(grammar, R"({"a": [1, 2.5e3, {"b": null}], "c": "\"\n\""})"));
  EXPECT_FALSE(matches(grammar, "[1]"));
  EXPECT_FALSE(matches(grammar, "{\"a\": 01}"));
}

TEST(Schema, MayReferToItself) {
  const auto grammar = compiled(Kind::kJsonSchema, R"({"$defs": {"node": {"type": "object", "required": ["v"],
      "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"})");
  EXPECT_TRUE(matches(grammar, R"({"v": 1, "next": {"v": 2, "next": {"v": 3}}})"));
  EXPECT_FALSE(matches(grammar, R"({"v": 1, "next": 2})"));
}

TEST(Regex, IsMatchedByTheWholeAnswer) {
  const auto grammar = compiled(Kind::kRegex, R"([A-Z][a-z]+ \d{4}(-\d\d)?)");
  EXPECT_TRUE(matches(grammar, "March 2024"));
  EXPECT_TRUE(matches(grammar, "March 2024-05"));
  EXPECT_FALSE(matches(grammar, "March 2024-5"));
  EXPECT_FALSE(matches(grammar, "the March 2024"));
}

TEST(Ebnf, StartsAtRoot) {
  const auto grammar = compiled(Kind::kEbnf, "root ::= (\"yes\" | \"no\") tail\ntail ::= \"\" | \" \" root");
  EXPECT_TRUE(matches(grammar, "yes no yes"));
  EXPECT_FALSE(matches(grammar, "yes maybe"));
}

TEST(Compiler, GivesEqualSourcesOneGrammar) {
  const Source source{Kind::kRegex, "kept|once"};
  const auto first = compiler().compile(source);
  const auto before = compiler().stats();
  EXPECT_EQ(*compiler().compile(source), *first);
  EXPECT_EQ(compiler().stats().reused, before.reused + 1);
  EXPECT_NE(*compiler().compile({Kind::kRegex, "kept|twice"}), *first);
}

TEST(Compiler, KeepsABoundedAmount) {
  Compiler::Limits limits;
  limits.kept_bytes = 200 << 10;
  Compiler small(smollm2(), smollm2().vocab_size(), {*smollm2().eos()}, limits);
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(small.compile({Kind::kRegex, "[a-z]{3}" + std::to_string(i)}).ok());
  EXPECT_LE(small.stats().kept_bytes, limits.kept_bytes);
  EXPECT_LT(small.stats().kept, 30u);
}

TEST(Compiler, ServesSeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(compiler().compile({Kind::kRegex, "threads[0-9]" + std::to_string((t + i) % 3)}).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// --- What is refused.

std::string refusal(Kind kind, const std::string& text) {
  const auto grammar = compiler().compile({kind, text});
  if (grammar.ok()) return "accepted";
  EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument);
  return grammar.status().message();
}

TEST(Compiler, SaysWhatIsWrongWithASource) {
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"type": "quux"})"), HasSubstr("quux"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, "{"), HasSubstr("can't be used"));
  EXPECT_THAT(refusal(Kind::kRegex, "(a"), HasSubstr("parenthesis"));
  EXPECT_THAT(refusal(Kind::kEbnf, "start ::= \"a\""), HasSubstr("root"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"$ref": "#/$defs/gone"})"), HasSubstr("can't be used"));
  EXPECT_THAT(refusal(Kind::kRegex, "\xff"), HasSubstr("UTF-8"));
}

TEST(Compiler, RefusesKeywordsTheEngineWouldLeaveOut) {
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"type": "array", "items": {"type": "integer"}, "uniqueItems": true})"),
              HasSubstr("uniqueItems"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"anyOf": [{"type": "string"}], "maxLength": 3})"), HasSubstr("maxLength"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"not": {"type": "string"}})"), HasSubstr("not"));
}

// --- Hostile sources: each is compiled or refused in bounded time, and the next one works.

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Hostile {
  const char* what;
  Kind kind;
  std::string text;
};

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

std::vector<Hostile> hostile_sources() {
  std::string doubling, unions = R"({"anyOf":[)", chain, properties = R"({"type":"object","properties":{)";
  for (int i = 0; i < 40; ++i) {
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" + std::to_string(i + 1) + "\n";
  }
  for (int i = 0; i < 400; ++i) unions += R"({"type":"string","pattern":"^[a-z]{0,)" + std::to_string(i) + R"(}$"},)";
  for (int i = 0; i < 6000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " | \"a\"\n";
  for (int i = 0; i < 3000; ++i) properties += "\"p" + std::to_string(i) + "\":{\"type\":\"integer\"},";
  std::string values;
  for (int i = 0; i < 9000; ++i) values += "\"value" + std::to_string(i * 7919) + "\",";
  return {
      {"deep groups", Kind::kRegex, repeated("(", 60'000) + "a" + repeated(")", 60'000)},
      {"deep schema", Kind::kJsonSchema, repeated(R"({"type":"array","items":)", 4000) + "{}" + repeated("}", 4000)},
      {"groups at the limit", Kind::kRegex, repeated("(a|", 120) + "a" + repeated(")", 120)},
      {"repeated repeats", Kind::kRegex, repeated("(", 12) + "a" + repeated("{1,50})", 12)},
      {"a huge repeat", Kind::kRegex, "(ab?c*){1,1000000}"},
      {"a determinization that explodes", Kind::kRegex, "(a|b)*a" + repeated("(a|b)", 40)},
      {"nested stars", Kind::kRegex, repeated("(", 30) + "a*" + repeated(")*", 30)},
      {"an alternation of many", Kind::kRegex, repeated("[a-z]{3}x|", 8000) + "y"},
      {"rules that double", Kind::kEbnf, "root ::= r0\n" + doubling + "r40 ::= \"a\" | \"\"\n"},
      {"a chain of rules", Kind::kEbnf, "root ::= r0\n" + chain + "r6000 ::= \"a\"\n"},
      {"left recursion", Kind::kEbnf, "root ::= root root | \"a\" | \"\""},
      {"a rule of itself", Kind::kEbnf, "root ::= root"},
      {"many unions", Kind::kJsonSchema, unions + R"({"type":"null"}]})"},
      {"many properties", Kind::kJsonSchema, properties + R"("z":{"type":"integer"}}})"},
      {"many values", Kind::kJsonSchema, R"({"enum":[)" + values + R"("end"]})"},
      {"refers to itself only", Kind::kJsonSchema, R"({"$ref":"#"})"},
      {"two that refer to each other", Kind::kJsonSchema,
       R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"},
      {"itself twice", Kind::kJsonSchema,
       R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"})"},
      {"a long text", Kind::kJsonSchema, R"({"type":"string","minLength":100000,"maxLength":200000})"},
      {"a long list", Kind::kJsonSchema, R"({"type":"array","items":{"type":"integer"},"minItems":50000})"},
      {"numbers at the edge", Kind::kJsonSchema, R"({"type":"integer","minimum":-9e18,"maximum":9e18})"},
      {"a multiple of many", Kind::kJsonSchema, R"({"type":"integer","multipleOf":99991})"},
      {"an odd pattern", Kind::kJsonSchema, R"({"type":"string","pattern":"(((a{1,9}){1,9}){1,9}){1,9}"})"},
      {"a structural tag of nothing", Kind::kStructuralTag, R"({"type":"structural_tag","format":{}})"},
  };
}

TEST(Compiler, BoundsHostileSources) {
  Compiler::Limits limits;
  limits.cpu_ms = 1000;
  Compiler guarded(smollm2(), smollm2().vocab_size(), {*smollm2().eos()}, limits);
  const double slack = test::kInstrumented ? 20 : 1.5;
  for (const Hostile& hostile : hostile_sources()) {
    const double before = cpu_seconds();
    const auto grammar = guarded.compile({hostile.kind, hostile.text});
    const double seconds = cpu_seconds() - before;
    EXPECT_LT(seconds, 1.0 + slack) << hostile.what;
    EXPECT_TRUE(grammar.ok() || grammar.status().code() == StatusCode::kInvalidArgument) << hostile.what;
  }
  EXPECT_TRUE(guarded.compile({Kind::kRegex, "still works"}).ok());
}

}  // namespace
}  // namespace levada::grammar
