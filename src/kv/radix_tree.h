// What: RadixTree, which prefixes have their KV in pages, shared by all requests of a namespace; LRU eviction of what nobody uses.
// Owner: the scheduler owns it; it owns its nodes and, through PagePool::adopt, the pages of their keys.
// Thread: the scheduler's.
// Invariant: keys start and end on page borders; a locked node's ancestors are locked; one match allocates nothing and
// copies no key byte; look-ups are pure except for recency (law 6).
//
// Recency: one intrusive list holds all unlocked nodes, most recent first, each before its children; so the last entry
// is always a leaf and evicting it is O(1).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/request.h"
#include "kv/page_pool.h"
#include "kv/token_key.h"

namespace levada::kv {

class RadixTree;

// Keeps a path of nodes from being evicted while alive. Movable; must not outlive the tree.
class PrefixLock {
 public:
  PrefixLock() = default;
  PrefixLock(PrefixLock&& other) noexcept;
  PrefixLock& operator=(PrefixLock&& other) noexcept;
  ~PrefixLock();
  std::int32_t tokens() const;   // elements from the root to the locked node's end; 0 when empty

 private:
  friend class RadixTree;
  RadixTree* tree_ = nullptr;
  void* node_ = nullptr;
};

// The result of a look-up; valid until the next non-const call on the tree.
struct PrefixMatch {
  std::int32_t tokens = 0;   // matched elements, a multiple of the page size
  void* node = nullptr;      // deepest node touched
};

class RadixTree {
 public:
  RadixTree(PagePool& pool, std::int32_t page_size_tokens, bool enabled = true);
  ~RadixTree();   // returns all pages; aborts when a PrefixLock is still alive

  NamespaceId intern(const core::CacheNamespace& ns);

  // Longest stored prefix of `key`, whole pages. Refreshes recency of the path. Cost: O(tokens / 64 B + nodes).
  PrefixMatch match(const TokenKey& key);
  // Pages of the match, appended to `pages` in token order.
  void append_pages(const PrefixMatch& match, std::vector<core::PageId>& pages) const;
  // Locks the matched path (splits the last node if the match ends inside it).
  PrefixLock lock(const PrefixMatch& match);

  struct Inserted {
    std::int32_t already_there_tokens = 0;   // prefix of the key that the tree had before this call
    PrefixLock lock;                         // on the whole inserted key
  };
  // Stores whole pages of `key` (its tail beyond the last page border is ignored). `pages` are the key's pages in token
  // order; those for tokens the tree already had are ignored (the caller keeps them); the others are adopted: the caller
  // calls PageLease::adopt for exactly [already_there, floor(size)) / page size.
  Inserted insert(const TokenKey& key, std::span<const core::PageId> pages);

  // Evicts least recently used unlocked leaves until `pages` pages are freed or nothing is left. Returns pages freed.
  std::int32_t evict(std::int32_t pages);
  // Evicts everything unlocked.
  std::int32_t clear();

  std::int32_t cached_pages() const;      // all adopted pages
  std::int32_t evictable_pages() const;   // pages of unlocked nodes
  std::int64_t node_count() const;
  std::int64_t evicted_tokens_total() const;
  // Aborts unless structure, recency order, lock counts and page counts agree. O(nodes + pages).
  void check() const;
};

}  // namespace levada::kv
