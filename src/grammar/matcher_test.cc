// What follows what: masks agree with what is accepted, tokens are taken back, an answer ends where its grammar does.
#include "grammar/matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "grammar/vocabulary_test.h"

namespace levada::grammar {
namespace {

using Kind = Source::Kind;

constexpr const char* kPerson = R"({"type": "object", "required": ["name", "tags", "home"], "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"enum": ["a", "bc", "déjà"]}, "maxItems": 3},
    "home": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"zip": {"type": "string",
             "pattern": "^[0-9]{5}$"}}, "required": ["zip"]}]}}})";

text::Token pick(const std::vector<std::uint32_t>& words, std::mt19937& random, bool shown) {
  for (;;) {
    const auto id = static_cast<text::Token>(random() % static_cast<unsigned>(smollm2().vocab_size()));
    if (shows(words, id) == shown) return id;
    if (!shown || random() % 4096 != 0) continue;
    for (text::Token any = 0; any < smollm2().vocab_size(); ++any) {  // few are shown
      if (shows(words, any)) return any;
    }
    return -1;
  }
}

TEST(Matcher, ShowsExactlyWhatItAccepts) {
  std::mt19937 random(20261130);
  for (int walk = 0; walk < 8; ++walk) {
    Matcher matcher(compiled(Kind::kJsonSchema, kPerson));
    for (int step = 0; step < 60 && !matcher.is_finished(); ++step) {
      std::vector<std::uint32_t> words = mask_words();
      ASSERT_TRUE(matcher.fill(words)) << "a schema never allows everything";
      for (int wrong = 0; wrong < 5; ++wrong) EXPECT_FALSE(matcher.accept(pick(words, random, false)).ok());
      std::vector<std::uint32_t> again = mask_words();
      matcher.fill(again);
      EXPECT_EQ(words, again) << "a refused token changes nothing";
      const text::Token token = pick(words, random, true);
      ASSERT_GE(token, 0) << "at least one token is shown";
      ASSERT_TRUE(matcher.accept(token).ok());
    }
  }
}

TEST(Matcher, TakesTokensBack) {
  const auto grammar = compiled(Kind::kJsonSchema, kPerson);
  const std::vector<text::Token> tokens =
      smollm2().encode(R"({"name": "Zoë", "age": 7, "tags": ["bc"], "home": null})", {false, false});
  Matcher straight(grammar), wavering(grammar);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::vector<std::uint32_t> one = mask_words(), other = mask_words();
    straight.fill(one);
    wavering.fill(other);
    EXPECT_EQ(one, other) << "before token " << i;
    ASSERT_TRUE(straight.accept(tokens[i]).ok());
    ASSERT_TRUE(wavering.accept(tokens[i]).ok());
    const auto back = static_cast<std::int32_t>(i % 3);
    if (i + 1 < 3) continue;
    wavering.rollback(back);
    for (std::size_t k = i + 1 - static_cast<std::size_t>(back); k <= i; ++k)
      ASSERT_TRUE(wavering.accept(tokens[k]).ok());
  }
}

TEST(Matcher, EndsWithAStopTokenOnlyWhenComplete) {
  const text::Token eos = *smollm2().eos();
  Matcher matcher(compiled(Kind::kRegex, "ab?"));
  EXPECT_FALSE(matcher.accept(eos).ok());
  ASSERT_TRUE(matcher.accept(*smollm2().token_id("a")).ok());
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(matcher.is_finished());
  ASSERT_TRUE(matcher.accept(eos).ok());
  EXPECT_TRUE(matcher.is_finished());

  std::vector<std::uint32_t> words = mask_words();
  ASSERT_TRUE(matcher.fill(words));
  for (text::Token id = 0; id < smollm2().vocab_size(); ++id) EXPECT_EQ(shows(words, id), id == eos);
  EXPECT_TRUE(matcher.accept(eos).ok()) << "an answer that ignores its end goes on with nothing else";
  EXPECT_FALSE(matcher.accept(*smollm2().token_id("b")).ok());
  matcher.rollback(2);
  EXPECT_FALSE(matcher.is_finished());
  EXPECT_TRUE(matcher.accept(*smollm2().token_id("b")).ok());
}

TEST(Matcher, NeverShowsSpecialTokensInsideAnAnswer) {
  Matcher matcher(compiled(Kind::kRegex, "[^x]*"));
  std::vector<std::uint32_t> words = mask_words();
  ASSERT_TRUE(matcher.fill(words));
  for (text::Token id = 0; id < smollm2().vocab_size(); ++id) {
    const bool special = smollm2().is_special(id) && id != *smollm2().eos();
    EXPECT_FALSE(special && shows(words, id)) << id;
  }
  EXPECT_FALSE(matcher.accept(-1).ok());
  EXPECT_FALSE(matcher.accept(smollm2().vocab_size()).ok());
}

// Highly ambiguous grammars cost more with every byte: the matcher gives up before it holds up others.
TEST(Matcher, GivesUpOnAGrammarThatCostsTooMuch) {
  Matcher matcher(compiled(Kind::kEbnf, "root ::= root root | \"a\" | \"\""));
  const text::Token a = *smollm2().token_id("a");
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) {
    std::vector<std::uint32_t> words = mask_words();
    matcher.fill(words);
    status = matcher.accept(a);
  }
  if (status.ok()) GTEST_SKIP() << "the engine follows it cheaply";
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
}

}  // namespace
}  // namespace levada::grammar
