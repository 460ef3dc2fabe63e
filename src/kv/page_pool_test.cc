#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace levada::kv {
namespace {

std::vector<std::int32_t> ids(std::span<const core::PageId> pages) {
  std::vector<std::int32_t> result;
  for (const core::PageId page : pages) result.push_back(core::index(page));
  return result;
}

void expect_counts(const PagePool& pool, std::int32_t free, std::int32_t leased, std::int32_t adopted) {
  EXPECT_EQ(pool.free_pages(), free);
  EXPECT_EQ(pool.leased_pages(), leased);
  EXPECT_EQ(pool.adopted_pages(), adopted);
  EXPECT_EQ(pool.total_pages(), free + leased + adopted);
  pool.check();
}

TEST(PagePool, AllocatesAllOfThemOrNothing) {
  PagePool pool(4);
  auto three = pool.try_allocate(3);
  ASSERT_TRUE(three.has_value());
  EXPECT_EQ(three->size(), 3);
  EXPECT_FALSE(pool.try_allocate(2).has_value());
  expect_counts(pool, 1, 3, 0);
  EXPECT_TRUE(pool.try_allocate(1).has_value());
}

TEST(PagePool, ZeroPagesAlwaysSucceed) {
  PagePool pool(0);
  auto lease = pool.try_allocate(0);
  ASSERT_TRUE(lease.has_value());
  EXPECT_EQ(lease->size(), 0);
  expect_counts(pool, 0, 0, 0);
}

TEST(PagePool, HandsOutTheLowestPagesFirstAscending) {
  PagePool pool(200);
  std::vector<PageLease> leases;
  for (int lease = 0; lease < 20; ++lease) leases.push_back(*pool.try_allocate(10));
  leases[17] = PageLease();  // pages 170..179
  leases[3] = PageLease();   // pages 30..39
  leases[6] = PageLease();   // pages 60..69, across a word of the bitmap
  std::vector<std::int32_t> expected;
  for (const std::int32_t first : {30, 60, 170}) {
    for (std::int32_t page = first; page < first + 10; ++page) expected.push_back(page);
  }
  expected.resize(25);
  const PageLease lease = *pool.try_allocate(25);
  EXPECT_EQ(ids(lease.pages()), expected);
  expect_counts(pool, 5, 195, 0);
}

TEST(PagePool, NoPageIsHandedOutTwice) {
  PagePool pool(64);
  std::vector<PageLease> leases;
  std::vector<std::int32_t> all;
  while (auto lease = pool.try_allocate(4)) {
    const auto part = ids(lease->pages());
    all.insert(all.end(), part.begin(), part.end());
    leases.push_back(std::move(*lease));
  }
  std::sort(all.begin(), all.end());
  std::vector<std::int32_t> expected(64);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(PageLease, DestructorGivesThePagesBack) {
  PagePool pool(8);
  { const auto lease = pool.try_allocate(5); }
  expect_counts(pool, 8, 0, 0);
}

TEST(PageLease, MovedFromLeaseHoldsNothing) {
  PagePool pool(8);
  PageLease first = *pool.try_allocate(3);
  PageLease second = std::move(first);
  EXPECT_EQ(second.size(), 3);
  EXPECT_EQ(first.size(), 0);  // NOLINT: that is the question
  first = *pool.try_allocate(2);
  second = std::move(first);  // the three pages go back
  expect_counts(pool, 6, 2, 0);
  EXPECT_EQ(second.size(), 2);
}

TEST(PageLease, AppendTakesOverBehindItsOwn) {
  PagePool pool(8);
  PageLease lease = *pool.try_allocate(2);
  PageLease more = *pool.try_allocate(3);
  const auto expected = [&] {
    auto all = ids(lease.pages());
    for (const std::int32_t id : ids(more.pages())) all.push_back(id);
    return all;
  }();
  lease.append(std::move(more));
  EXPECT_EQ(ids(lease.pages()), expected);
  lease.append(PageLease());
  EXPECT_EQ(lease.size(), 5);
  expect_counts(pool, 3, 5, 0);
  PageLease empty;
  empty.append(std::move(lease));
  EXPECT_EQ(empty.size(), 5);
}

TEST(PageLease, AdoptGivesAMiddlePartToTheTreeAndKeepsTheOrderOfTheRest) {
  PagePool pool(8);
  PageLease lease = *pool.try_allocate(5);
  const auto before = ids(lease.pages());
  const std::array adopted = {lease.pages()[1], lease.pages()[2]};
  lease.adopt(1, 2);
  EXPECT_EQ(ids(lease.pages()), (std::vector<std::int32_t>{before[0], before[3], before[4]}));
  expect_counts(pool, 3, 3, 2);
  EXPECT_EQ(pool.state(adopted[0]), PageState::kAdopted);
  pool.release_adopted(adopted);
  expect_counts(pool, 5, 3, 0);
}

TEST(PageLease, ReleaseReturnsThePartNow) {
  PagePool pool(8);
  PageLease lease = *pool.try_allocate(5);
  const auto before = ids(lease.pages());
  lease.release(3, 2);
  EXPECT_EQ(ids(lease.pages()), (std::vector<std::int32_t>{before[0], before[1], before[2]}));
  EXPECT_EQ(pool.state(core::PageId{before[3]}), PageState::kFree);
  expect_counts(pool, 5, 3, 0);
  lease.release(0, 0);
  lease.adopt(3, 0);
  expect_counts(pool, 5, 3, 0);
}

TEST(PagePool, EveryPageIsInExactlyOneStateThroughRandomUse) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::int32_t n) {
      return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(n));
    };
    PagePool pool(96);
    std::vector<PageLease> leases;
    std::vector<core::PageId> adopted;
    for (int step = 0; step < 60; ++step) {
      if (auto lease = pool.try_allocate(below(30))) leases.push_back(std::move(*lease));
      if (leases.empty()) continue;
      PageLease& lease = leases[static_cast<std::size_t>(below(static_cast<std::int32_t>(leases.size())))];
      const std::int32_t first = below(lease.size() + 1), count = below(lease.size() - first + 1);
      const auto part = lease.pages().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
      switch (below(4)) {
        case 0:
          adopted.insert(adopted.end(), part.begin(), part.end());
          lease.adopt(first, count);
          break;
        case 1: lease.release(first, count); break;
        case 2: lease = PageLease(); break;
        case 3:
          pool.release_adopted(adopted);
          adopted.clear();
          break;
      }
      pool.check();
      EXPECT_EQ(pool.adopted_pages(), static_cast<std::int32_t>(adopted.size()));
    }
    pool.release_adopted(adopted);
  }
}

TEST(PagePoolDeathTest, AbortsWhenALeaseIsStillAlive) {
  EXPECT_DEATH(
      {
        auto pool = std::make_unique<PagePool>(4);
        auto lease = pool->try_allocate(1);
        pool.reset();
      },
      "a PageLease outlives its pool");
}

// A long lease of ascending ids is moved many pages at a time; one wrong page among them must not slip through.
TEST(PagePoolDeathTest, AbortsOnOneWrongPageInALongRun) {
  PagePool pool(32);
  PageLease lease = *pool.try_allocate(32);
  lease.release(0, 8);  // page 0 is free again
  const std::vector<core::PageId> pages(lease.pages().begin(), lease.pages().end());
  lease.adopt(0, 24);
  for (const std::size_t wrong : {0u, 3u, 7u, 8u, 23u}) {
    auto with_a_free_page = pages, twice_the_same = pages;
    with_a_free_page[wrong] = core::PageId{0};
    EXPECT_EQ(pool.state(core::PageId{0}), PageState::kFree);
    EXPECT_DEATH(pool.release_adopted(with_a_free_page), "not in the state its holder believes");
    twice_the_same[wrong] = pages[wrong == 0 ? 1 : 0];
    EXPECT_DEATH(pool.release_adopted(twice_the_same), "not in the state its holder believes");
  }
  pool.release_adopted(pages);
  EXPECT_EQ(pool.free_pages(), 32);
}

TEST(PagePoolDeathTest, AbortsOnASecondReleaseOfOnePage) {
  PagePool pool(4);
  PageLease lease = *pool.try_allocate(1);
  const std::array page = {lease.pages()[0]};
  EXPECT_DEATH(pool.release_adopted(page), "not in the state its holder believes");
  EXPECT_DEATH(pool.release_adopted(std::array{core::PageId{4}}), "outside the pool");
  EXPECT_DEATH(pool.release_adopted(std::array{core::kNoPage}), "outside the pool");
  EXPECT_DEATH(lease.release(0, 2), "a range outside the lease");
}

}  // namespace
}  // namespace levada::kv
