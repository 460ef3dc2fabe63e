// What: RadixTree, which prefixes have their KV in pages, shared by all requests of a namespace; LRU eviction of what
// nobody uses.
// Owner: the scheduler owns it; it owns its nodes and, through PageLease::adopt, the pages of their keys.
// Thread: the scheduler's.
// Invariant: keys start and end on page borders; a locked node's ancestors are locked; one match allocates nothing and
// copies no key byte; look-ups are pure except for recency (law 6).
//
// Recency: one intrusive list holds all unlocked nodes, most recent first, each before its children; so the last entry
// is always a leaf and evicting it is O(1). lock() takes the path out of the list; when the last lock of a node goes,
// the node re-enters as the most recent.
//
//              insert()               ~PrefixLock (last one)
//   (nothing) ─────────> locked node ─────────────────────> evictable node ───evict()──> (nothing)
//                            ^                                    │
//                            └───────────────lock()───────────────┘
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/request.h"
#include "kv/child_index.h"
#include "kv/namespace_table.h"
#include "kv/page_pool.h"
#include "kv/radix_node.h"
#include "kv/recency_list.h"
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
  // Elements from the root to the locked node's end; 0 when empty.
  std::int32_t tokens() const { return node_ == nullptr ? 0 : node_->end_elements; }

 private:
  friend class RadixTree;
  PrefixLock(RadixTree& tree, RadixNode& node) : tree_(&tree), node_(&node) {}
  RadixTree* tree_ = nullptr;
  RadixNode* node_ = nullptr;
};

// The result of a look-up; valid until the next non-const call on the tree. The caller may lower `tokens` to a smaller
// multiple of the page size, e.g. to leave the last page of a prompt to be computed.
struct PrefixMatch {
  std::int32_t tokens = 0;    // matched elements, a multiple of the page size
  RadixNode* node = nullptr;  // deepest node touched; null when nothing matched
};

class RadixTree {
 public:
  // Disabled: match() finds nothing and insert() stores nothing. The pool must outlive the tree.
  RadixTree(PagePool& pool, std::int32_t page_size_tokens, bool enabled = true);
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;
  ~RadixTree();  // returns all pages; aborts when a PrefixLock or NamespaceRef is still alive

  // The id for keys of this namespace, valid while the returned reference lives.
  NamespaceRef intern(const core::CacheNamespace& ns) { return namespaces_.intern(ns); }

  // Longest stored prefix of `key`, whole pages. Refreshes recency of the path. Cost: O(tokens / 64 B + nodes).
  PrefixMatch match(const TokenKey& key);
  // Pages of the match, appended to `pages` in token order.
  void append_pages(const PrefixMatch& match, std::vector<core::PageId>& pages) const;
  // Pages of everything the lock protects, from the root on.
  void append_pages(const PrefixLock& lock, std::vector<core::PageId>& pages) const;
  // Locks the matched path (splits the last node if the match ends inside it). An empty match gives an empty lock.
  PrefixLock lock(const PrefixMatch& match);

  struct Inserted {
    std::int32_t already_there_tokens = 0;  // prefix of the key that the tree had before this call
    std::int32_t stored_tokens = 0;         // prefix that it has now: whole pages of the key, 0 when disabled
    PrefixLock lock;                        // on the whole inserted key
  };
  // Stores whole pages of `key` (its tail beyond the last page border is ignored). `pages` are the key's pages in token
  // order, at least size / page size of them; those for tokens the tree already had are ignored (the caller keeps
  // them); the others are adopted: the caller calls PageLease::adopt for exactly [already_there, stored) / page size
  // before the lock goes.
  Inserted insert(const TokenKey& key, std::span<const core::PageId> pages);

  // Evicts least recently used unlocked leaves until `pages` pages are freed or nothing is left. Returns pages freed,
  // which is more than asked for when the last leaf is longer.
  std::int32_t evict(std::int32_t pages);
  // Evicts everything unlocked.
  std::int32_t clear();

  std::int32_t page_size_tokens() const { return page_size_; }
  std::int32_t cached_pages() const { return cached_pages_; }        // all adopted pages
  std::int32_t evictable_pages() const { return evictable_pages_; }  // pages of unlocked nodes
  std::int64_t node_count() const { return static_cast<std::int64_t>(index_.size()); }
  std::int64_t evicted_tokens_total() const { return evicted_tokens_; }
  std::int32_t namespace_count() const { return namespaces_.size(); }

  // Calls `visit` with the pages of every node, in no particular order.
  void visit_pages(const std::function<void(std::span<const core::PageId>)>& visit) const;
  // The first disagreement found in structure, recency order, lock counts and page counts. O(nodes + pages).
  Status verify() const;
  // Aborts unless verify() is ok.
  void check() const;

 private:
  friend class PrefixLock;
  struct Walk {
    RadixNode* node;        // deepest node with a matched page, or the root
    std::int32_t elements;  // matched from the root on
  };
  Walk walk(const TokenKey& key);
  // The child of `parent` that shares at least a page with the key at `tokens`, and how many whole-page elements.
  RadixNode* find_child(const RadixNode& parent, const core::Token* tokens, std::int32_t elements,
                        std::int32_t& common) const;
  // Cuts the node after `elements`: a new node takes the head, `node` keeps its identity and the tail.
  RadixNode& split(RadixNode& node, std::int32_t elements);
  RadixNode& add_child(RadixNode& parent, const TokenKey& rest, std::span<const core::PageId> pages);
  // The node that ends exactly where the walk ended, after a split where needed.
  RadixNode& node_ending_at(RadixNode& node, std::int32_t elements);
  void append_path(const RadixNode* node, std::int32_t elements, std::vector<core::PageId>& pages) const;
  void touch_path(RadixNode* node);
  PrefixLock lock_path(RadixNode& node);
  void unlock_path(RadixNode& node);
  void evict_leaf(RadixNode& leaf);
  std::int32_t whole_pages(std::int32_t elements) const { return elements / page_size_ * page_size_; }
  Status verify_node(const RadixNode& node) const;
  Status verify_recency() const;
  Status verify_totals() const;

  PagePool& pool_;
  const std::int32_t page_size_;
  const bool enabled_;
  NamespaceTable namespaces_;
  NodeArena arena_;
  ChildIndex index_;
  RecencyList recency_;
  std::int32_t cached_pages_ = 0;
  std::int32_t evictable_pages_ = 0;
  std::int64_t evicted_tokens_ = 0;
  std::int64_t live_locks_ = 0;
};

}  // namespace levada::kv
