#include "kv/token_key.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kv/token_scan.h"

namespace levada::kv {
namespace {

using Tokens = std::vector<core::Token>;

// The naive form of S21: every pair written out.
std::vector<std::pair<core::Token, core::Token>> pairs(std::span<const core::Token> tokens) {
  std::vector<std::pair<core::Token, core::Token>> result;
  for (std::size_t at = 0; at + 1 < tokens.size(); ++at) result.emplace_back(tokens[at], tokens[at + 1]);
  return result;
}

TEST(TokenKey, BigramKeyOfNTokensHasOneElementLess) {
  for (const auto& [tokens, elements] : {std::pair{0, 0}, {1, 0}, {2, 1}, {65, 64}}) {
    const Tokens storage(static_cast<std::size_t>(tokens), 7);
    EXPECT_EQ(TokenKey(storage, kDefaultNamespace, true).size(), elements) << tokens << " tokens";
    EXPECT_EQ(TokenKey(storage, kDefaultNamespace, false).size(), tokens);
  }
}

TEST(TokenKey, SliceIsAViewOfTheSameTokens) {
  const Tokens storage = {10, 11, 12, 13, 14};
  const TokenKey plain = TokenKey(storage, NamespaceId{3}).slice(1, 3);
  EXPECT_EQ(plain.tokens().data(), storage.data() + 1);
  EXPECT_EQ(plain.size(), 3);
  const TokenKey bigram = TokenKey(storage, NamespaceId{3}, true).slice(1, 3);
  EXPECT_EQ(bigram.tokens().data(), storage.data() + 1);
  EXPECT_EQ(bigram.size(), 3);
  EXPECT_EQ(bigram.tokens().size(), 4u);
  EXPECT_EQ(bigram.name_space(), NamespaceId{3});
  EXPECT_TRUE(bigram.bigram());
  EXPECT_EQ(TokenKey(storage, NamespaceId{3}, true).slice(4, 0).size(), 0);
}

TEST(TokenKey, SlicedBigramsSpellTheSamePairsAsTheNaiveForm) {
  rc::check([] {
    const auto storage = *rc::gen::container<Tokens>(rc::gen::inRange(0, 5));
    const TokenKey key(storage, kDefaultNamespace, true);
    const int first = *rc::gen::inRange(0, key.size() + 1);
    const int count = *rc::gen::inRange(0, key.size() - first + 1);
    const auto all = pairs(storage);
    const std::vector expected(all.begin() + first, all.begin() + first + count);
    RC_ASSERT(pairs(key.slice(first, count).tokens()) == expected);
  });
}

TEST(TokenScan, CommonPrefixFindsTheFirstMismatch) {
  for (const std::int32_t tokens : {0, 1, 2, 3, 7, 64, 1023, 1024, 1025, 4096}) {
    const Tokens a(static_cast<std::size_t>(tokens), 1);
    EXPECT_EQ(common_prefix(a.data(), a.data(), tokens), tokens);
    for (std::int32_t at = 0; at < tokens; at += std::max(1, tokens / 97)) {
      Tokens b = a;
      b[static_cast<std::size_t>(at)] = -1;
      if (at + 1 < tokens) b.back() = 2;
      EXPECT_EQ(common_prefix(a.data(), b.data(), tokens), at);
    }
  }
}

TEST(TokenScan, CommonPrefixAgreesWithAPlainLoop) {
  rc::check([] {
    const auto a = *rc::gen::container<Tokens>(rc::gen::inRange(-1, 2));
    const auto b = *rc::gen::container<Tokens>(rc::gen::inRange(-1, 2));
    const auto tokens = std::min(a.size(), b.size());
    const auto expected = std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(tokens), b.begin()).first;
    RC_ASSERT(common_prefix(a.data(), b.data(), static_cast<std::int32_t>(tokens)) == expected - a.begin());
  });
}

TEST(TokenScan, HashDependsOnTheParentAndOnEveryTokenOfThePage) {
  const int parents[2] = {};
  for (const std::int32_t tokens : {1, 2, 4, 5, 8, 64, 65}) {
    Tokens page(static_cast<std::size_t>(tokens), 5);
    const auto hash = child_hash(&parents[0], page.data(), tokens);
    EXPECT_EQ(child_hash(&parents[0], Tokens(page).data(), tokens), hash);
    EXPECT_NE(child_hash(&parents[1], page.data(), tokens), hash);
    for (core::Token& token : page) {
      token = 6;
      EXPECT_NE(child_hash(&parents[0], page.data(), tokens), hash) << tokens;
      token = 5;
    }
  }
}

}  // namespace
}  // namespace levada::kv
