// Drawings: each box is a node, [a..b) the elements it covers; pages below have 4 tokens unless a test says otherwise.
#include "kv/radix_tree.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "kv/test_cache.h"

namespace levada::kv {
namespace {

TEST(RadixTree, EmptyTreeMatchesNothing) {
  TestCache cache(16, 4);
  EXPECT_EQ(cache.hit(run(0, 16)), 0);
  EXPECT_EQ(cache.hit(Tokens{}), 0);
  EXPECT_EQ(cache.tree.lock(cache.tree.match(TokenKey(run(0, 16), kDefaultNamespace))).tokens(), 0);
  EXPECT_EQ(cache.tree.evict(10), 0);
  cache.tree.check();
}

TEST(RadixTree, StoresWholePagesAndIgnoresTheTail) {
  TestCache cache(16, 4);
  const auto inserted = cache.put(run(0, 11));
  // root ─ [0..8); tokens 8, 9, 10 don't fill a page
  EXPECT_EQ(inserted.already_there_tokens, 0);
  EXPECT_EQ(inserted.stored_tokens, 8);
  EXPECT_EQ(inserted.lock.tokens(), 8);
  EXPECT_EQ(cache.tree.node_count(), 1);
  EXPECT_EQ(cache.hit(run(0, 11)), 8);
  EXPECT_EQ(cache.hit(run(0, 100)), 8);
  EXPECT_EQ(cache.hit(run(0, 7)), 4);
  EXPECT_EQ(cache.hit(run(0, 3)), 0);
  EXPECT_EQ(cache.hit(run(1, 8)), 0);
}

TEST(RadixTree, KeyShorterThanAPageStoresNothing) {
  TestCache cache(16, 4);
  const auto inserted = cache.put(run(0, 3));
  EXPECT_EQ(inserted.stored_tokens, 0);
  EXPECT_EQ(inserted.lock.tokens(), 0);
  EXPECT_EQ(cache.tree.node_count(), 0);
}

TEST(RadixTree, ReinsertKeepsTheFirstPagesAndLeavesTheCallersAlone) {
  TestCache cache(16, 4);
  (void)cache.put(run(0, 8));
  const auto pages = cache.pages_of(run(0, 8));
  const auto again = cache.put(run(0, 16));
  // root ─ [0..8) ─ [8..16)
  EXPECT_EQ(again.already_there_tokens, 8);
  EXPECT_EQ(again.stored_tokens, 16);
  EXPECT_EQ(cache.tree.node_count(), 2);
  EXPECT_EQ(cache.tree.cached_pages(), 4);
  const auto longer = cache.pages_of(run(0, 16));
  ASSERT_EQ(longer.size(), 4u);
  EXPECT_EQ(std::vector(longer.begin(), longer.begin() + 2), pages);
  std::vector<core::PageId> locked;
  cache.tree.append_pages(again.lock, locked);
  EXPECT_EQ(locked, longer);
  EXPECT_EQ(cache.put(run(0, 16)).already_there_tokens, 16);
  EXPECT_TRUE(cache.audit_now().ok());
}

TEST(RadixTree, SplitsAFourPageKeyAtEachPage) {
  for (std::int32_t shared_pages = 1; shared_pages < 4; ++shared_pages) {
    const std::int32_t shared = 4 * shared_pages;
    TestCache cache(16, 4);
    (void)cache.put(run(0, 16));
    const auto before = cache.pages_of(run(0, 16));
    const Tokens fork = run(0, shared) + run(100, 16 - shared);
    EXPECT_EQ(cache.put(fork).already_there_tokens, shared);
    // root ─ [0..shared) ┬ [shared..16)
    //                    └ [shared..16)'
    EXPECT_EQ(cache.tree.node_count(), 3);
    EXPECT_EQ(cache.hit(run(0, 16)), 16);
    EXPECT_EQ(cache.hit(fork), 16);
    EXPECT_EQ(cache.hit(run(0, shared)), shared);
    EXPECT_EQ(cache.hit(run(0, shared) + run(200, 8)), shared);
    EXPECT_EQ(cache.pages_of(run(0, 16)), before) << "a split moves no page";
    EXPECT_EQ(cache.tree.cached_pages(), 4 + 4 - shared_pages);
    EXPECT_TRUE(cache.audit_now().ok());
  }
}

TEST(RadixTree, KeysThatDifferInsideAPageShareOnlyThePagesBefore) {
  TestCache cache(16, 4);
  (void)cache.put(run(0, 8));
  EXPECT_EQ(cache.put(run(0, 6) + run(50, 2)).already_there_tokens, 4);
  EXPECT_EQ(cache.put(run(0, 2) + run(60, 6)).already_there_tokens, 0);
  // root ┬ [0..4) ┬ [4..8)
  //      │        └ [4..8)'
  //      └ [0..8)''
  EXPECT_EQ(cache.tree.node_count(), 4);
}

TEST(RadixTree, LockSplitsTheLastNodeIfTheMatchEndsInsideIt) {
  TestCache cache(16, 4);
  (void)cache.put(run(0, 16));
  const Tokens prefix = run(0, 8);
  auto lock = cache.tree.lock(cache.tree.match(TokenKey(prefix, kDefaultNamespace)));
  // root ─ [0..8) locked ─ [8..16)
  EXPECT_EQ(lock.tokens(), 8);
  EXPECT_EQ(cache.tree.node_count(), 2);
  EXPECT_EQ(cache.tree.evictable_pages(), 2);
  cache.tree.check();
  EXPECT_EQ(cache.tree.clear(), 2);
  EXPECT_EQ(cache.hit(run(0, 16)), 8);
  lock = PrefixLock();
  EXPECT_EQ(cache.tree.evictable_pages(), 2);
  EXPECT_EQ(cache.tree.clear(), 2);
  cache.tree.check();
}

TEST(RadixTree, CallerMayLowerAMatch) {
  TestCache cache(16, 4);
  (void)cache.put(run(0, 8));
  (void)cache.put(run(0, 16));
  // root ─ [0..8) ─ [8..16)
  const auto all = cache.pages_of(run(0, 16));
  for (std::int32_t tokens = 0; tokens <= 16; tokens += 4) {
    const Tokens key = run(0, 16);
    PrefixMatch match = cache.tree.match(TokenKey(key, kDefaultNamespace));
    match.tokens = tokens;
    std::vector<core::PageId> pages;
    cache.tree.append_pages(match, pages);
    EXPECT_EQ(pages, std::vector(all.begin(), all.begin() + tokens / 4));
    EXPECT_EQ(cache.tree.lock(match).tokens(), tokens);
    cache.tree.check();
  }
}

TEST(RadixTree, LockSurvivesASplitBelowAndAboveItsEnd) {
  TestCache cache(32, 4);
  auto first = cache.put(run(0, 16));
  (void)cache.put(run(0, 8) + run(100, 8));
  // root ─ [0..8) ┬ [8..16) locked by `first`
  //               └ [8..16)'
  EXPECT_EQ(first.lock.tokens(), 16);
  EXPECT_EQ(cache.tree.evictable_pages(), 2);
  EXPECT_EQ(cache.tree.clear(), 2);
  EXPECT_EQ(cache.hit(run(0, 16)), 16);
  const PrefixLock moved = std::move(first.lock);
  EXPECT_EQ(cache.tree.clear(), 0);
  EXPECT_EQ(moved.tokens(), 16);
}

TEST(RadixTree, ANodeWithTwoLocksStaysUntilBothAreGone) {
  TestCache cache(16, 4);
  std::optional first = cache.put(run(0, 8));
  std::optional second = cache.put(run(0, 8));
  first.reset();
  EXPECT_EQ(cache.tree.clear(), 0);
  second.reset();
  EXPECT_EQ(cache.tree.clear(), 2);
}

TEST(RadixTree, EvictsLeastRecentlyUsedLeavesFirst) {
  TestCache cache(32, 4);
  const Tokens a = run(0, 8) + run(100, 4), b = run(0, 8) + run(200, 4), c = run(300, 4);
  (void)cache.put(a);
  (void)cache.put(b);
  (void)cache.put(c);
  // root ┬ [0..8) ┬ a [8..12)
  //      │        └ b [8..12)
  //      └ c [0..4)
  EXPECT_EQ(cache.hit(a), 12);  // order of use now: b, c, a
  EXPECT_EQ(cache.tree.evict(1), 1);
  EXPECT_EQ(cache.tree.evicted_tokens_total(), 4);
  EXPECT_EQ(cache.hit(b), 8);
  EXPECT_EQ(cache.tree.evict(1), 1);
  EXPECT_EQ(cache.hit(c), 0);
  EXPECT_EQ(cache.hit(a), 12);
  // root ─ [0..8) ─ a [8..12): the leaf goes before its parent
  EXPECT_EQ(cache.tree.evict(1), 1);
  EXPECT_EQ(cache.hit(a), 8);
  EXPECT_EQ(cache.tree.evict(1), 2) << "a leaf goes as a whole";
  EXPECT_EQ(cache.tree.evict(1), 0);
  EXPECT_EQ(cache.pool.free_pages(), 32);
  EXPECT_EQ(cache.tree.evicted_tokens_total(), 20);
}

TEST(RadixTree, UnlockedNodesReEnterAsTheMostRecent) {
  TestCache cache(16, 4);
  const Tokens a = run(0, 4), b = run(100, 4);
  std::optional locked = cache.put(a);
  (void)cache.put(b);
  locked.reset();  // a is released after b
  EXPECT_EQ(cache.tree.evict(1), 1);
  EXPECT_EQ(cache.hit(a), 4);
  EXPECT_EQ(cache.hit(b), 0);
}

TEST(RadixTree, DisabledMatchesAndStoresNothing) {
  TestCache cache(16, 4, /*enabled=*/false);
  const auto inserted = cache.put(run(0, 16));
  EXPECT_EQ(inserted.already_there_tokens, 0);
  EXPECT_EQ(inserted.stored_tokens, 0);
  EXPECT_EQ(inserted.lock.tokens(), 0);
  EXPECT_EQ(cache.hit(run(0, 16)), 0);
  EXPECT_EQ(cache.pool.free_pages(), 16);
}

TEST(RadixTree, BigramKeysOfEachLength) {
  for (const std::int32_t page_size : {1, 4, 64}) {
    for (const std::int32_t tokens : {0, 1, 2, 65}) {
      TestCache cache(65, page_size);
      const Tokens storage = run(0, tokens);
      const TokenKey key(storage, kDefaultNamespace, true);
      const std::int32_t stored = std::max(tokens - 1, 0) / page_size * page_size;
      EXPECT_EQ(cache.put(key).stored_tokens, stored);
      EXPECT_EQ(cache.hit(key), stored);
      EXPECT_EQ(cache.tree.node_count(), stored > 0 ? 1 : 0);
      EXPECT_TRUE(cache.audit_now().ok());
    }
  }
}

TEST(RadixTree, BigramElementNeedsBothItsTokens) {
  TestCache cache(32, 1);
  const Tokens stored = {1, 2, 3, 4}, fork = {1, 2, 9, 4};
  (void)cache.put(TokenKey(stored, kDefaultNamespace, true));
  // root ─ (1,2) (2,3) (3,4)
  EXPECT_EQ(cache.hit(TokenKey(fork, kDefaultNamespace, true)), 1);
  EXPECT_EQ(cache.put(TokenKey(fork, kDefaultNamespace, true)).already_there_tokens, 1);
  // root ─ (1,2) ┬ (2,3) (3,4)
  //              └ (2,9) (9,4)
  EXPECT_EQ(cache.tree.node_count(), 3);
  EXPECT_EQ(cache.hit(TokenKey(stored, kDefaultNamespace, true)), 3);
  EXPECT_EQ(cache.hit(TokenKey(fork, kDefaultNamespace, true)), 3);
}

TEST(RadixTree, TokensAndBigramsNeverShareANode) {
  TestCache cache(32, 1);
  const Tokens tokens = run(0, 8);
  (void)cache.put(TokenKey(tokens, kDefaultNamespace, false));
  EXPECT_EQ(cache.hit(TokenKey(tokens, kDefaultNamespace, true)), 0);
}

// B28 (c): who may share is told by tagged fields, not by a concatenation.
TEST(RadixTreeNamespaces, DifferentNamespacesNeverShareANode) {
  TestCache cache(64, 4);
  const std::vector<core::CacheNamespace> names = {
      {},          {"", {}},    {{}, ""},    {"", ""},    {"adapter-1", {}}, {{}, "adapter-1"},
      {"c", "ab"}, {"bc", "a"}, {"abc", {}}, {{}, "abc"}, {"ab", "c"},
  };
  std::vector<NamespaceRef> refs;
  const Tokens tokens = run(0, 8);
  for (const auto& name : names) {
    refs.push_back(cache.tree.intern(name));
    EXPECT_EQ(cache.hit(TokenKey(tokens, refs.back().id())), 0);
    (void)cache.put(TokenKey(tokens, refs.back().id()));
    EXPECT_EQ(cache.hit(TokenKey(tokens, refs.back().id())), 8);
  }
  EXPECT_EQ(cache.tree.node_count(), static_cast<std::int64_t>(names.size()));
  for (std::size_t at = 0; at < names.size(); ++at) EXPECT_EQ(cache.tree.intern(names[at]).id(), refs[at].id());
  EXPECT_TRUE(cache.audit_now().ok());
  cache.tree.clear();
}

TEST(RadixTreeNamespaces, NoFieldsMeansTheDefaultNamespace) {
  TestCache cache(4, 4);
  EXPECT_EQ(cache.tree.intern({}).id(), kDefaultNamespace);
  EXPECT_EQ(NamespaceRef().id(), kDefaultNamespace);
}

TEST(RadixTreeNamespaces, NamesFromOutsideDoNotPileUp) {
  TestCache cache(4, 4);
  for (int client = 0; client < 1000; ++client) {
    const auto ref = cache.tree.intern({.extra_key = "client " + std::to_string(client), .cache_salt = {}});
    EXPECT_EQ(cache.hit(TokenKey(run(0, 8), ref.id())), 0);
  }
  EXPECT_EQ(cache.tree.namespace_count(), 1);
}

TEST(RadixTreeNamespaces, LivesWhileAReferenceOrANodeNeedsIt) {
  TestCache cache(8, 4);
  const core::CacheNamespace name{.extra_key = "x", .cache_salt = "y"};
  const Tokens tokens = run(0, 8);
  {
    const auto ref = cache.tree.intern(name);
    (void)cache.put(TokenKey(tokens, ref.id()));
  }
  EXPECT_EQ(cache.tree.namespace_count(), 2);
  {
    const auto ref = cache.tree.intern(name);
    EXPECT_EQ(cache.hit(TokenKey(tokens, ref.id())), 8) << "found again by its name";
    cache.tree.clear();
    EXPECT_EQ(cache.hit(TokenKey(tokens, ref.id())), 0) << "the id stays valid without nodes";
    (void)cache.put(TokenKey(tokens, ref.id(), true));
  }
  EXPECT_EQ(cache.tree.namespace_count(), 2);
  cache.tree.clear();
  EXPECT_EQ(cache.tree.namespace_count(), 1);
}

TEST(RadixTreeDeathTest, AbortsWhenAHandleOutlivesIt) {
  EXPECT_DEATH(
      {
        std::optional<TestCache> cache(std::in_place, 8, 4);
        const auto inserted = cache->put(run(0, 8));
        cache.reset();
      },
      "a PrefixLock outlives its tree");
  EXPECT_DEATH(
      {
        std::optional<TestCache> cache(std::in_place, 8, 4);
        const auto ref = cache->tree.intern({});
        cache.reset();
      },
      "a NamespaceRef outlives its tree");
}

TEST(RadixTreeDeathTest, AbortsOnMisuse) {
  TestCache cache(8, 4);
  (void)cache.put(run(0, 8));
  const Tokens tokens = run(0, 8);
  EXPECT_DEATH(cache.hit(TokenKey(tokens, NamespaceId{77})), "a NamespaceId nobody keeps alive");
  PrefixMatch match = cache.tree.match(TokenKey(tokens, kDefaultNamespace));
  match.tokens = 12;
  EXPECT_DEATH((void)cache.tree.lock(match), "may be lowered, never raised");
  match.tokens = 3;
  EXPECT_DEATH((void)cache.tree.lock(match), "ends on a page border");
  EXPECT_DEATH((void)cache.tree.insert(TokenKey(tokens, kDefaultNamespace), {}),
               "every whole page of the key has a page");
}

TEST(RadixTree, DestructorReturnsAllPages) {
  PagePool pool(8);
  {
    RadixTree tree(pool, 4);
    PageLease lease = *pool.try_allocate(2);
    const Tokens tokens = run(0, 8);
    const auto inserted = tree.insert(TokenKey(tokens, kDefaultNamespace), lease.pages());
    lease.adopt(0, 2);
    EXPECT_EQ(pool.adopted_pages(), 2);
  }
  EXPECT_EQ(pool.free_pages(), 8);
}

}  // namespace
}  // namespace levada::kv
