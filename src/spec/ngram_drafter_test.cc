#include "spec/ngram_drafter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "support/instrumented.h"

namespace levada::spec {
namespace {

using core::Token;
using Tokens = std::vector<Token>;

Tokens proposals(const Tokens& text, std::int32_t most, NgramOptions options = {}) {
  NgramDrafter drafter(options);
  drafter.extend(text);
  Tokens drafts;
  drafter.propose(text, most, drafts);
  return drafts;
}

TEST(NgramDrafter, ProposesWhatFollowedTheEndOfTheTextLastTime) {
  EXPECT_EQ(proposals({1, 2, 3, 4, 5, 6, 1, 2}, 3), (Tokens{3, 4, 5}));
}

TEST(NgramDrafter, OfSeveralPlacesTheLongestAgreementWins) {
  //                  ┌ agrees over 1 2 3    ┌ later, over 2 3 only
  EXPECT_EQ(proposals({1, 2, 3, 40, 7, 2, 3, 50, 8, 1, 2, 3}, 1), (Tokens{40}));
}

TEST(NgramDrafter, OfEquallyLongAgreementsTheLatestWins) {
  EXPECT_EQ(proposals({9, 2, 3, 40, 9, 2, 3, 50, 9, 2, 3}, 1), (Tokens{50}));
}

TEST(NgramDrafter, AgreementBeyondMaxMatchDoesNotCount) {
  // The earlier place agrees over four tokens, the later over three; told to look at three, they are equal.
  const Tokens text{1, 2, 3, 4, 40, 0, 2, 3, 4, 50, 1, 2, 3, 4};
  EXPECT_EQ(proposals(text, 1), (Tokens{40}));
  EXPECT_EQ(proposals(text, 1, {.min_match = 2, .max_match = 3}), (Tokens{50}));
}

TEST(NgramDrafter, FewerThanMinMatchTokensAreNoAgreement) {
  EXPECT_EQ(proposals({5, 2, 9, 8, 2}, 4), Tokens{});
  EXPECT_EQ(proposals({5, 2, 9, 8, 2}, 4, {.min_match = 1, .max_match = 3}), (Tokens{9, 8, 2, 9}));
}

TEST(NgramDrafter, ProposesNothingOnTextThatDoesNotRepeat) {
  Tokens text(1000);
  std::iota(text.begin(), text.end(), 0);
  EXPECT_EQ(proposals(text, 8), Tokens{});
}

TEST(NgramDrafter, ProposesNothingOnTextsTooShortToRepeat) {
  EXPECT_EQ(proposals({}, 8), Tokens{});
  EXPECT_EQ(proposals({1}, 8), Tokens{});
  EXPECT_EQ(proposals({1, 1}, 8), Tokens{});
}

TEST(NgramDrafter, TheVeryFirstTokensCanBeAgreedWith) {
  EXPECT_EQ(proposals({1, 2, 3, 1, 2}, 1), (Tokens{3}));
  EXPECT_EQ(proposals({1, 1, 1}, 1), (Tokens{1}));  // the agreement overlaps itself
}

TEST(NgramDrafter, WhereTheAgreementReachesTheEndItGoesOnRepeating) {
  EXPECT_EQ(proposals({7, 1, 2, 3, 1, 2, 3}, 7), (Tokens{1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(proposals({4, 4, 4, 4}, 3), (Tokens{4, 4, 4}));
}

TEST(NgramDrafter, AppendsAtMostWhatIsAsked) {
  Tokens drafts{77};
  NgramDrafter drafter;
  const Tokens text{1, 2, 3, 4, 1, 2};
  drafter.extend(text);
  drafter.propose(text, 2, drafts);
  EXPECT_EQ(drafts, (Tokens{77, 3, 4}));
  drafter.propose(text, 0, drafts);
  EXPECT_EQ(drafts.size(), 3u);
}

// The contract by search: every earlier place is compared with the end.
Tokens by_search(const Tokens& text, std::int32_t most, NgramOptions options) {
  std::size_t best = 0, longest = 0;
  for (std::size_t place = 1; place < text.size(); ++place) {
    std::size_t agreed = 0;
    while (agreed < place && agreed < static_cast<std::size_t>(options.max_match) &&
           text[place - 1 - agreed] == text[text.size() - 1 - agreed])
      ++agreed;
    if (agreed >= static_cast<std::size_t>(options.min_match) && agreed >= longest) longest = agreed, best = place;
  }
  Tokens drafts;
  for (std::size_t i = 0; best > 0 && i < static_cast<std::size_t>(most); ++i) {
    const std::size_t at = best + i;
    drafts.push_back(at < text.size() ? text[at] : drafts[at - text.size()]);
  }
  return drafts;
}

RC_GTEST_PROP(NgramDrafter, IsTheSearchOverAllPlacesHoweverTheTextCame, ()) {
  const auto alphabet = *rc::gen::inRange(1, 6);
  const auto text = *rc::gen::container<Tokens>(rc::gen::inRange<Token>(0, alphabet));
  const auto min = *rc::gen::inRange(1, 4);
  const NgramOptions options{min, min + *rc::gen::inRange(0, 7)};
  NgramDrafter drafter(options);
  std::size_t known = 0;
  while (known < text.size()) {
    known += *rc::gen::inRange<std::size_t>(1, text.size() - known + 1);
    const Tokens so_far(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(known));
    drafter.extend(so_far);
    RC_ASSERT(drafter.learned() == known);
    Tokens drafts;
    drafter.propose(so_far, 12, drafts);
    RC_ASSERT(drafts == by_search(so_far, 12, options));
    RC_ASSERT(drafts == proposals(so_far, 12, options));
  }
}

// Texts of few tokens, of many, and of one sentence again and again.
std::vector<Tokens> long_texts(std::size_t length) {
  std::vector<Tokens> texts(4, Tokens(length));
  std::uint64_t random = 1;
  for (std::size_t i = 0; i < length; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    texts[0][i] = static_cast<Token>(random >> 33) % 4;
    texts[1][i] = static_cast<Token>(random >> 33) % 50'000;
    texts[2][i] = static_cast<Token>(i % 37);
    texts[3][i] = 5;
  }
  return texts;
}

TEST(NgramDrafter, MemoryIsBoundedByAConstantPerToken) {
  constexpr std::size_t kTokens = 50'000;
  for (const Tokens& text : long_texts(kTokens)) {
    NgramDrafter drafter;
    drafter.extend(text);
    EXPECT_LE(drafter.memory_bytes(),
              sizeof(Token) * kTokens * 4 * 7 + 1000);  // seven lengths, each table a quarter full
  }
}

TEST(NgramDrafter, ATokenOfALongTextCostsWhatATokenOfAShortOneCosts) {
  if (test::kInstrumented) GTEST_SKIP() << "measures time";
  // The best of several turns: the first touch of memory and other processes only add. A cost that grew with the text
  // would be 16 times as large.
  const auto cost = [](const Tokens& text) {
    double best = 1e9;
    for (int turn = 0; turn < 5; ++turn) {
      NgramDrafter drafter;
      Tokens drafts;
      const auto start = std::chrono::steady_clock::now();
      for (std::size_t n = 1; n <= text.size(); ++n) {
        drafter.extend(std::span(text).first(n));
        drafts.clear();
        drafter.propose(std::span(text).first(n), 8, drafts);
      }
      const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
      best = std::min(best, spent.count() / static_cast<double>(text.size()));
    }
    return best;
  };
  const auto shorts = long_texts(2'000), longs = long_texts(32'000);
  for (std::size_t i = 0; i < shorts.size(); ++i) {
    const double at_first = cost(shorts[i]), later = cost(longs[i]);
    std::printf("text %zu: %.0f ns a token of 2,000, %.0f of 32,000\n", i, at_first, later);
    EXPECT_LT(later, 5 * at_first + 100) << i;
  }
}

}  // namespace
}  // namespace levada::spec
