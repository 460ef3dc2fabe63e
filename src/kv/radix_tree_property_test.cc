// Random histories: the tree and NaiveTree do the same operations and must agree on every answer, and the audit must
// hold after each step. One seed replays one history.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "kv/naive_tree.h"
#include "kv/test_cache.h"
#include "support/instrumented.h"

namespace levada::kv {
namespace {

class History {
 public:
  History(std::uint64_t seed, std::int32_t page_size)
      : random_(seed), page_size_(page_size), cache_(kPages, page_size), naive_(page_size) {}

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      switch (below(9)) {
        case 0:
        case 1: match(); break;
        case 2:
        case 3:
        case 4: insert(); break;
        case 5: lock(); break;
        case 6: unlock(); break;
        case 7: evict(1 + below(6)); break;
        case 8: below(10) == 0 ? evict(kPages) : match(); break;
      }
      expect_agreement();
    }
    while (!locks_.empty()) unlock();
    evict(kPages);
    EXPECT_EQ(cache_.pool.free_pages(), kPages);
    EXPECT_EQ(cache_.tree.namespace_count(), 1);
  }

 private:
  static constexpr std::int32_t kPages = 48;

  struct Lookup {
    Tokens tokens;
    core::CacheNamespace name;
    bool bigram;
    NamespaceRef ref;
    TokenKey key() const { return TokenKey(tokens, ref.id(), bigram); }
    NaiveTree::Key naive_key() const { return NaiveTree::elements(tokens, bigram); }
  };
  struct Held {
    PrefixLock lock;
    NaiveTree::Node* node;
  };

  std::int32_t below(std::int32_t n) { return static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(n)); }

  // Runs of few different page contents, so that keys share prefixes, fork at and inside pages, and end anywhere.
  Lookup random_lookup() {
    static const std::array<core::CacheNamespace, 4> kNames = {
        core::CacheNamespace{}, {"ab", "c"}, {"a", "bc"}, {"", {}}};
    Lookup lookup{{}, kNames[static_cast<std::size_t>(std::max(0, below(8) - 4))], below(4) == 0, {}};
    const std::int32_t pages = below(7);
    for (std::int32_t page = 0; page < pages; ++page) {
      lookup.tokens = std::move(lookup.tokens) + Tokens(static_cast<std::size_t>(page_size_), below(2));
    }
    lookup.tokens = std::move(lookup.tokens) + Tokens(static_cast<std::size_t>(below(page_size_ + 1)), 0);
    if (!lookup.tokens.empty() && below(4) == 0) {
      lookup.tokens[static_cast<std::size_t>(below(static_cast<std::int32_t>(lookup.tokens.size())))] = 2;
    }
    lookup.ref = cache_.tree.intern(lookup.name);
    return lookup;
  }

  NaiveTree::Found naive_find(const Lookup& lookup) {
    return naive_.find(naive_.root(lookup.name, lookup.bigram), lookup.naive_key());
  }

  static std::vector<std::int32_t> ids(std::span<const core::PageId> pages) {
    std::vector<std::int32_t> result;
    for (const core::PageId page : pages) result.push_back(core::index(page));
    return result;
  }

  PrefixMatch match_both(const Lookup& lookup, const NaiveTree::Found& expected) {
    const PrefixMatch match = cache_.tree.match(lookup.key());
    naive_.touch(expected.node);
    EXPECT_EQ(match.tokens, static_cast<std::int32_t>(expected.pages.size()) * page_size_);
    std::vector<core::PageId> pages;
    cache_.tree.append_pages(match, pages);
    EXPECT_EQ(ids(pages), expected.pages);
    return match;
  }

  void match() {
    const Lookup lookup = random_lookup();
    match_both(lookup, naive_find(lookup));
  }

  void lock() {
    const Lookup lookup = random_lookup();
    const NaiveTree::Found expected = naive_find(lookup);
    const PrefixMatch match = match_both(lookup, expected);
    PrefixLock lock = cache_.tree.lock(match);
    EXPECT_EQ(lock.tokens(), match.tokens);
    if (match.tokens == 0) return;
    NaiveTree::Node* node = naive_.cut(expected);
    naive_.lock(node);
    locks_.push_back({std::move(lock), node});
  }

  void insert() {
    const Lookup lookup = random_lookup();
    auto lease = cache_.pool.try_allocate(lookup.key().size() / page_size_);
    if (!lease) return;
    const std::int32_t known = static_cast<std::int32_t>(naive_find(lookup).pages.size());
    auto inserted = cache_.tree.insert(lookup.key(), lease->pages());
    NaiveTree::Node* node =
        naive_.insert(naive_.root(lookup.name, lookup.bigram), lookup.naive_key(), ids(lease->pages()));
    EXPECT_EQ(inserted.already_there_tokens, known * page_size_);
    EXPECT_EQ(inserted.stored_tokens, lookup.key().size() / page_size_ * page_size_);
    lease->adopt(known, lease->size() - known);
    if (inserted.stored_tokens == 0) return;
    naive_.lock(node);
    locks_.push_back({std::move(inserted.lock), node});
    if (below(3) > 0) unlock_at(locks_.size() - 1);
  }

  void unlock() {
    if (!locks_.empty()) unlock_at(static_cast<std::size_t>(below(static_cast<std::int32_t>(locks_.size()))));
  }
  void unlock_at(std::size_t at) {
    std::swap(locks_[at], locks_.back());
    naive_.unlock(locks_.back().node);
    locks_.pop_back();
  }

  void evict(std::int32_t pages) {
    const auto expected = naive_.evict(pages);
    EXPECT_EQ(cache_.tree.evict(pages), static_cast<std::int32_t>(expected.size()));
    for (const std::int32_t page : expected)
      EXPECT_EQ(cache_.pool.state(core::PageId{page}), PageState::kFree) << "page " << page;
    evicted_tokens_ += static_cast<std::int64_t>(expected.size()) * page_size_;
  }

  void expect_agreement() {
    std::int32_t cached = 0, evictable = 0;
    std::int64_t nodes = 0;
    naive_.for_each([&](const NaiveTree::Node& node) {
      ++nodes;
      cached += static_cast<std::int32_t>(node.pages.size());
      if (node.locks == 0) evictable += static_cast<std::int32_t>(node.pages.size());
    });
    EXPECT_EQ(cache_.tree.cached_pages(), cached);
    EXPECT_EQ(cache_.tree.evictable_pages(), evictable);
    EXPECT_EQ(cache_.tree.node_count(), nodes);
    EXPECT_EQ(cache_.tree.evicted_tokens_total(), evicted_tokens_);
    EXPECT_EQ(cache_.audit_now().to_string(), Status().to_string());
  }

  std::mt19937_64 random_;
  std::int32_t page_size_;
  TestCache cache_;
  NaiveTree naive_;
  std::vector<Held> locks_;
  std::int64_t evicted_tokens_ = 0;
};

class RadixTreeHistories : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(RadixTreeHistories, AgreeWithTheNaiveTreeAtEveryStep) {
  for (std::uint64_t seed = 1; seed <= (test::kInstrumented ? 200 : 1500); ++seed) {
    History(seed, GetParam()).run(60);
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", page size " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, RadixTreeHistories, ::testing::Values(1, 4, 64),
                         [](const auto& test) { return "p" + std::to_string(test.param); });

}  // namespace
}  // namespace levada::kv
