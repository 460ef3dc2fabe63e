// What: PagePool, bookkeeping of which KV pages are free. It holds ids, no bytes.
// Owner: the scheduler. PageLease is the only way to hold private pages; its destructor gives them back (law 7).
// Thread: the scheduler's.
// Invariant: free + leased + adopted == total; every page is in exactly one state.
//
//            allocate()                  adopt()                      (the radix tree)
//   free ──────────────────> leased ──────────────────> adopted
//    ^                          │ ~PageLease / release()    │
//    └──────────────────────────┴───────────────────────────┘ release_adopted()
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"

namespace levada::kv {

class PagePool;

// Pages held by one owner outside the tree. Movable; must not outlive the pool.
class PageLease {
 public:
  PageLease() = default;
  PageLease(PageLease&& other) noexcept;
  PageLease& operator=(PageLease&& other) noexcept;
  ~PageLease();

  std::span<const core::PageId> pages() const { return pages_; }
  std::int32_t size() const { return static_cast<std::int32_t>(pages_.size()); }
  // Takes over the other lease's pages, behind the own ones.
  void append(PageLease other);
  // Gives pages [first, first + count) to the tree (leased -> adopted); the rest keeps its order.
  void adopt(std::int32_t first, std::int32_t count);
  // Returns pages [first, first + count) to the free list now.
  void release(std::int32_t first, std::int32_t count);

 private:
  friend class PagePool;
  PagePool* pool_ = nullptr;
  std::vector<core::PageId> pages_;
};

class PagePool {
 public:
  explicit PagePool(std::int32_t total_pages);
  PagePool(const PagePool&) = delete;
  ~PagePool();   // aborts when a lease is still alive

  // All of them or nothing.
  std::optional<PageLease> try_allocate(std::int32_t pages);
  // Pages the tree gives up.
  void release_adopted(std::span<const core::PageId> pages);

  std::int32_t total_pages() const;
  std::int32_t free_pages() const;
  std::int32_t leased_pages() const;
  std::int32_t adopted_pages() const;
  // Aborts unless every page is in exactly one state and the free list has no duplicates. O(total).
  void check() const;
};

}  // namespace levada::kv
