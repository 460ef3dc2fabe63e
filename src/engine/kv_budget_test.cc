#include "engine/kv_budget.h"

#include <gtest/gtest.h>

namespace levada::engine {
namespace {

// 2 planes x 4 layers x 8 elements x 4 bytes = 256 bytes a token, 4096 bytes a page of 16.
core::KvLayout layout() {
  return core::KvLayout(16,
                        {{"k", "target", DType::kF32, 8, {0, 1, 2, 3}}, {"v", "target", DType::kF32, 8, {0, 1, 2, 3}}});
}

TEST(KvBudget, AskedTokensAreRoundedDownToWholePages) {
  EXPECT_EQ(choose_kv_pages(layout(), {.max_total_tokens = 47, .free_bytes = 1 << 20}).value(), 2);
}

TEST(KvBudget, LessThanAPageIsRefused) {
  const auto pages = choose_kv_pages(layout(), {.max_total_tokens = 15, .free_bytes = 1 << 20});
  ASSERT_FALSE(pages.ok());
  EXPECT_EQ(pages.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(pages.status().message().find("--max-total-tokens"), std::string::npos);
}

TEST(KvBudget, MoreThanTheFreeMemoryIsRefusedWithBothNumbers) {
  const auto pages = choose_kv_pages(layout(), {.max_total_tokens = 1 << 20, .free_bytes = 2 << 20});
  ASSERT_FALSE(pages.ok());
  EXPECT_NE(pages.status().message().find("256 MiB"), std::string::npos);
  EXPECT_NE(pages.status().message().find("2 MiB"), std::string::npos);
}

TEST(KvBudget, UnsetTakesTheMemoryShareButNotMoreThanAFewContexts) {
  const KvBudget small{.mem_fraction_static = 0.5, .free_bytes = 1 << 20, .context_length_tokens = 4096};
  EXPECT_EQ(choose_kv_pages(layout(), small).value(), 128);  // half a MiB of 4096-byte pages
  const KvBudget large{.mem_fraction_static = 0.5, .free_bytes = 1 << 30, .context_length_tokens = 4096};
  EXPECT_EQ(choose_kv_pages(layout(), large).value(), kDefaultContexts * 4096 / 16);
}

TEST(KvBudget, WithoutAMostOfContextsTheShareIsTakenWhole) {
  const KvBudget gpu{
      .mem_fraction_static = 0.5, .free_bytes = 1 << 30, .context_length_tokens = 4096, .max_contexts = std::nullopt};
  EXPECT_EQ(choose_kv_pages(layout(), gpu).value(), (1 << 29) / 4096);
}

TEST(KvBudget, WhatIsReservedIsNeitherSharedNorGivenToAskedTokens) {
  KvBudget budget{
      .mem_fraction_static = 0.5, .free_bytes = 1 << 20, .reserve_bytes = 1 << 19, .context_length_tokens = 4096};
  EXPECT_EQ(choose_kv_pages(layout(), budget).value(), 64);
  budget.max_total_tokens = 16 * 129;  // 516 KiB, and 512 are left
  EXPECT_EQ(choose_kv_pages(layout(), budget).status().code(), StatusCode::kResourceExhausted);
}

TEST(KvBudget, AContextShorterThanAPageStillGetsWholePages) {
  const KvBudget tiny{.mem_fraction_static = 0.5, .free_bytes = 1 << 20, .context_length_tokens = 2};
  EXPECT_EQ(choose_kv_pages(layout(), tiny).value(), kDefaultContexts);
}

TEST(KvBudget, TooLittleMemoryForAPageNamesTheRemediesThatHelp) {
  const auto pages = choose_kv_pages(layout(), {.free_bytes = 4096, .context_length_tokens = 4096});
  EXPECT_NE(pages.status().message().find("raise --mem-fraction-static or lower --page-size"), std::string::npos)
      << pages.status().message();
}

}  // namespace
}  // namespace levada::engine
