#include "sched/request_pages.h"

#include <gtest/gtest.h>

namespace levada::sched {
namespace {

using core::PageId;
using core::StepId;
using core::Token;

constexpr std::int32_t kPageSize = 2;

class RequestPagesTest : public testing::Test {
 protected:
  kv::TokenKey key(std::int32_t count) {
    return {std::span(tokens_).first(static_cast<std::size_t>(count)), kv::NamespaceId{}};
  }
  RequestPages fresh(std::int32_t pages) {
    RequestPages request(tree_, {});
    request.grow(pool_.try_allocate(pages).value());
    return request;
  }
  std::vector<PageId> table(const RequestPages& request) { return {request.table().begin(), request.table().end()}; }

  std::vector<Token> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8};
  kv::PagePool pool_{16};
  kv::RadixTree tree_{pool_, kPageSize};
};

TEST_F(RequestPagesTest, CommittedPagesBelongToTheTreeAndStayInTheTable) {
  // |1 2|3 4|5 _|  -> tree holds two pages, the third stays leased
  RequestPages request = fresh(3);
  const auto before = table(request);
  request.commit(tree_, key(5), std::nullopt);
  EXPECT_EQ(request.shared_pages(), 2);
  EXPECT_EQ(table(request), before);
  EXPECT_EQ(pool_.adopted_pages(), 2);
  EXPECT_EQ(pool_.leased_pages(), 1);
}

TEST_F(RequestPagesTest, PagesTheTreeHadReplaceTheOwnOnesAtOnceWhenNoPlanReadsThem) {
  RequestPages first = fresh(2), second = fresh(3);
  first.commit(tree_, key(4), std::nullopt);
  second.commit(tree_, key(6), std::nullopt);
  EXPECT_EQ(second.table()[0], first.table()[0]);
  EXPECT_EQ(second.table()[1], first.table()[1]);
  EXPECT_EQ(pool_.adopted_pages(), 3);
  EXPECT_EQ(pool_.leased_pages(), 0);
}

TEST_F(RequestPagesTest, DuplicatesStayLeasedUntilTheLastPlanThatReadsThemIsApplied) {
  RequestPages first = fresh(2), second = fresh(4);
  first.commit(tree_, key(4), std::nullopt);
  second.commit(tree_, key(6), StepId{7});  // plan 7 was built with the old table
  EXPECT_TRUE(second.release_is_coming());
  EXPECT_EQ(pool_.leased_pages(), 3);  // two duplicates and the last page
  second.on_step_applied(StepId{6});
  EXPECT_EQ(pool_.leased_pages(), 3);
  second.on_step_applied(StepId{7});
  EXPECT_EQ(pool_.leased_pages(), 1);
  // The page behind the duplicates is still the right one.
  const auto before = table(second);
  second.commit(tree_, key(8), std::nullopt);
  EXPECT_EQ(table(second), before);
  EXPECT_EQ(pool_.leased_pages(), 0);
}

TEST_F(RequestPagesTest, ACachedPrefixIsLockedForTheLifeOfTheRequest) {
  { fresh(3).commit(tree_, key(6), std::nullopt); }
  EXPECT_EQ(tree_.evictable_pages(), 3);
  {
    const RequestPages request(tree_, tree_.match(key(4)));
    EXPECT_EQ(request.size(), 2);
    EXPECT_EQ(tree_.evict(16), 1);  // only what lies behind the prefix
  }
  EXPECT_EQ(tree_.evict(16), 2);
}

TEST_F(RequestPagesTest, ADroppedRequestGivesItsPagesBack) {
  { RequestPages request = fresh(5); }
  EXPECT_EQ(pool_.free_pages(), 16);
}

TEST(RequestPages, WithoutACacheEverythingStaysTheRequests) {
  kv::PagePool pool(8);
  kv::RadixTree off(pool, kPageSize, false);
  RequestPages request(off, {});
  request.grow(pool.try_allocate(2).value());
  const std::vector<Token> tokens = {1, 2, 3, 4};
  request.commit(off, {tokens, kv::NamespaceId{}}, std::nullopt);
  EXPECT_EQ(request.shared_pages(), 0);
  EXPECT_EQ(pool.leased_pages(), 2);
}

}  // namespace
}  // namespace levada::sched
