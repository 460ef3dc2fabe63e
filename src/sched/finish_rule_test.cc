#include "sched/finish_rule.h"

#include <gtest/gtest.h>

#include "sched/sim/test_tokenizer.h"
#include "text/decoded_test.h"

namespace levada::sched {
namespace {

using core::FinishReason;
using core::Token;
using sim::test_tokenizer;

constexpr Token kEos = 2;

StopRules rules(std::int32_t max_new, std::vector<Token> stop_ids = {}, std::vector<std::string> stops = {}) {
  core::SamplingParams sampling;
  sampling.max_new_tokens = max_new;
  sampling.stop_token_ids = std::move(stop_ids);
  sampling.stop = std::move(stops);
  return make_stop_rules(sampling, std::vector<Token>{kEos}, 1000);
}

struct Fold {
  std::vector<Token> ids;
  std::string text;
  std::optional<core::Finish> finish;
};

// Feeds `tokens` in groups of `group`, as one step or many would.
Fold fold(const StopRules& rules, const std::vector<Token>& tokens, std::size_t group) {
  text::StreamDecoder decoder(test_tokenizer(),
                              rules.min_new_tokens > 0 ? std::vector<std::string>{} : rules.stop_strings, true,
                              rules.keep_stop);
  Fold answer;
  for (std::size_t at = 0; at < tokens.size() && !answer.finish; at += group) {
    const auto fresh = std::span(tokens).subspan(at, std::min(group, tokens.size() - at));
    FinishVerdict verdict =
        finish_rule(rules, fresh, static_cast<std::int32_t>(answer.ids.size()), &decoder, answer.text);
    answer.ids.insert(answer.ids.end(), fresh.begin(), fresh.begin() + verdict.cut);
    answer.finish = std::move(verdict.finish);
  }
  return answer;
}

std::vector<Token> encode(const char* text) { return test_tokenizer().encode(text); }

TEST(FinishRule, EarliestTokenWinsWhateverTheGrouping) {
  std::vector<Token> tokens = encode("one two three four five six");
  const auto many = static_cast<std::int32_t>(tokens.size());
  tokens.insert(tokens.begin() + 3, kEos);
  for (std::size_t group = 1; group <= tokens.size(); ++group) {
    const Fold answer = fold(rules(many, {}, {"five"}), tokens, group);
    ASSERT_TRUE(answer.finish);
    EXPECT_EQ(answer.finish->reason, FinishReason::kStop);
    EXPECT_EQ(std::get<Token>(answer.finish->matched), kEos);
    EXPECT_EQ(answer.ids, std::vector<Token>(tokens.begin(), tokens.begin() + 4));
    EXPECT_EQ(answer.text, text::decoded(test_tokenizer(), {tokens.begin(), tokens.begin() + 3}));
  }
}

TEST(FinishRule, StopStringSplitOverTokensDoesNotLeakItsFirstPart) {  // B37
  const std::vector<Token> tokens = encode("ABC DEFGHIJ tail");
  for (std::size_t group = 1; group <= tokens.size(); ++group) {
    const Fold answer = fold(rules(100, {}, {"DEFGHIJ"}), tokens, group);
    ASSERT_TRUE(answer.finish);
    EXPECT_EQ(std::get<std::string>(answer.finish->matched), "DEFGHIJ");
    EXPECT_EQ(answer.text, "ABC ");
  }
}

TEST(FinishRule, LengthEndsAtTheLimitAndReleasesWhatIsHeldBack) {
  const std::vector<Token> tokens = encode("ABC DEF");
  const Fold answer = fold(rules(static_cast<std::int32_t>(tokens.size()), {}, {"DEFGHIJ"}), tokens, 1);
  ASSERT_TRUE(answer.finish);
  EXPECT_EQ(answer.finish->reason, FinishReason::kLength);
  EXPECT_EQ(answer.text, "ABC DEF");
}

TEST(FinishRule, AStopIdGoesBeforeTheLengthOnTheSameToken) {
  const Fold answer = fold(rules(2, {7}), {5, 7}, 1);
  ASSERT_TRUE(answer.finish);
  EXPECT_EQ(answer.finish->reason, FinishReason::kStop);
}

TEST(FinishRule, TheFirstMinNewTokensNeverStop) {
  core::SamplingParams sampling;
  sampling.min_new_tokens = 3;
  sampling.stop = {"a"};
  const std::vector<Token> letters = {encode("a")[0], encode("a")[0], kEos, encode("a")[0], encode("b")[0]};
  const StopRules few = make_stop_rules(sampling, std::vector<Token>{kEos}, 1000);
  const Fold answer = fold(few, letters, 1);
  ASSERT_TRUE(answer.finish);
  EXPECT_EQ(answer.ids.size(), 4u);
  EXPECT_EQ(answer.text, "aa");
}

TEST(FinishRule, IgnoredEosIsAnOrdinaryTokenButStopIdsStillStop) {
  core::SamplingParams sampling;
  sampling.ignore_eos = true;
  sampling.stop_token_ids = {9};
  const StopRules some = make_stop_rules(sampling, std::vector<Token>{kEos}, 1000);
  const Fold answer = fold(some, {kEos, kEos, 9, 4}, 1);
  EXPECT_EQ(answer.ids, (std::vector<Token>{kEos, kEos, 9}));
}

TEST(FinishRule, OutputIsCappedByWhatContextAndPoolLeave) {
  core::SamplingParams sampling;
  sampling.max_new_tokens = 500;
  EXPECT_EQ(make_stop_rules(sampling, {}, 20).max_new_tokens, 20);
  EXPECT_EQ(make_stop_rules(sampling, {}, 600).max_new_tokens, 500);
}

TEST(FinishRule, ACharacterCutByTheLimitBecomesOneReplacementMark) {  // B13
  const std::vector<Token> emoji = encode("\xF0\x9F\xA6\x94");
  ASSERT_GT(emoji.size(), 1u);
  const Fold answer = fold(rules(1), emoji, 1);
  EXPECT_EQ(answer.text, "\xEF\xBF\xBD");
}

TEST(FinishRule, TheTextOfAMatchedStopIdIsKeptOnlyOnRequest) {
  core::SamplingParams sampling;
  const Token x = encode("x")[0], y = encode("y")[0];
  sampling.stop_token_ids = {y};
  EXPECT_EQ(fold(make_stop_rules(sampling, {}, 100), {x, y}, 1).text, "x");
  sampling.no_stop_trim = true;
  EXPECT_EQ(fold(make_stop_rules(sampling, {}, 100), {x, y}, 1).text, "xy");
}

}  // namespace
}  // namespace levada::sched
