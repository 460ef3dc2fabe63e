// What: TestCache, a pool and a tree as a request uses them, for the tests of this room.
// Owner: the test.
// Thread: one.
// Invariant: put() follows the contract of insert(): it adopts exactly the pages the tree says it stored.
// Never included by production code.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kv/audit.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"

namespace levada::kv {

using Tokens = std::vector<core::Token>;

// first, first + 1, ...
inline Tokens run(core::Token first, std::int32_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline Tokens operator+(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

struct TestCache {
  TestCache(std::int32_t pages, std::int32_t page_size, bool enabled = true)
      : pool(pages), tree(pool, page_size, enabled) {}

  // Inserts the key with freshly allocated pages; what the tree didn't take returns to the pool.
  RadixTree::Inserted put(const TokenKey& key) {
    const std::int32_t page_size = tree.page_size_tokens();
    auto lease = pool.try_allocate(key.size() / page_size);
    EXPECT_TRUE(lease.has_value()) << "the test's pool is too small";
    RadixTree::Inserted inserted = tree.insert(key, lease->pages());
    const std::int32_t first = inserted.already_there_tokens / page_size;
    lease->adopt(first, inserted.stored_tokens / page_size - first);
    tree.check();
    return inserted;
  }
  RadixTree::Inserted put(const Tokens& tokens) { return put(TokenKey(tokens, kDefaultNamespace)); }

  std::int32_t hit(const TokenKey& key) { return tree.match(key).tokens; }
  std::int32_t hit(const Tokens& tokens) { return hit(TokenKey(tokens, kDefaultNamespace)); }

  std::vector<core::PageId> pages_of(const TokenKey& key) {
    std::vector<core::PageId> pages;
    tree.append_pages(tree.match(key), pages);
    return pages;
  }
  std::vector<core::PageId> pages_of(const Tokens& tokens) { return pages_of(TokenKey(tokens, kDefaultNamespace)); }

  Status audit_now(std::span<const PageLease* const> leases = {}) const { return audit(pool, tree, leases); }

  PagePool pool;
  RadixTree tree;
};

}  // namespace levada::kv
