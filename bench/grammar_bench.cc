#include "bench/grammar_bench.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "grammar/compiler.h"
#include "grammar/matcher.h"
#include "text/tokenizer.h"

namespace levada::bench {
namespace {

using grammar::Source;

std::string schema_named(const std::string& extra) {
  return R"({"type":"object","required":["title","rating","tags","author","published"],"properties":{
    "title":{"type":"string"},"rating":{"type":"integer","minimum":1,"maximum":10},
    "tags":{"type":"array","items":{"enum":["news","sports","science","arts"]},"maxItems":4},
    "author":{"type":"object","required":["name","email"],"properties":{"name":{"type":"string"},
      "email":{"type":"string","pattern":"^[a-z0-9.]+@[a-z0-9.]+$"},"age":{"type":["integer","null"]}}},
    "score":{"type":"number"},"published":{"type":"boolean"},")" +
         extra + R"(":{"type":"string"}}})";
}

constexpr const char* kAnswer =
    R"({"title": "A day at the lake, and what came of it: \"water\" €5", "rating": 7, "tags": ["news", "science"],
  "author": {"name": "Ada Lovelace", "email": "ada.l@example.org", "age": 36}, "score": 0.125e3, "published": true})";

}  // namespace

std::vector<Case> run_grammar_bench(double scale, const text::Tokenizer& tokenizer) {
  LEVADA_CHECK(tokenizer.eos().has_value(), "answers have an end");
  grammar::Compiler compiler(tokenizer, tokenizer.vocab_size(), {*tokenizer.eos()}, {});
  Sampling once;
  once.samples = 1;
  once.warmup = 0;
  std::shared_ptr<const grammar::Grammar> grammar;
  std::vector<Case> cases;
  cases.push_back(sample_us(
      "compile_first", once, [] {},
      [&] {
        grammar = compiler.compile({Source::Kind::kJsonSchema, schema_named("note")}).value();
      }));
  Sampling some;
  some.samples = std::max(5, static_cast<std::int32_t>(40 * scale));
  some.warmup = 2;
  std::int32_t number = 0;
  std::string schema;
  cases.push_back(sample_us(
      "compile", some, [&] { schema = schema_named("extra" + std::to_string(++number)); },
      [&] {
        keep(compiler.compile({Source::Kind::kJsonSchema, schema}));
      }));

  const std::vector<text::Token> answer = tokenizer.encode(kAnswer, {false, false});
  std::vector<std::uint32_t> words((static_cast<std::size_t>(tokenizer.vocab_size()) + 31) / 32);
  std::optional<grammar::Matcher> matcher;
  std::size_t at = answer.size();
  const auto next = [&] {
    if (at == answer.size()) {
      matcher.emplace(grammar);
      at = 0;
    }
  };
  Sampling steps;
  steps.samples = std::max(200, static_cast<std::int32_t>(20'000 * scale));
  steps.warmup = 200;
  const auto accept = [&] { LEVADA_CHECK(matcher->accept(answer[at++]).ok(), "the answer follows its schema"); };
  bool filled = false;
  cases.push_back(sample_us(
      "mask_fill", steps,
      [&] {
        if (filled) accept();
        next();
        std::fill(words.begin(), words.end(), ~0u);
        filled = true;
      },
      [&] { keep(matcher->fill(words)); }));
  cases.push_back(sample_us("accept", steps, next, accept));
  return cases;
}

}  // namespace levada::bench
