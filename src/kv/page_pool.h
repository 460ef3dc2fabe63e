// What: PagePool, bookkeeping of which KV pages are free. It holds ids, no bytes.
// Owner: the scheduler. PageLease is the only way to hold private pages; its destructor gives them back (law 7).
// Thread: the scheduler's.
// Invariant: free + leased + adopted == total; every page is in exactly one state.
//
//            try_allocate()              PageLease::adopt()           (the radix tree)
//   free ──────────────────> leased ──────────────────> adopted
//    ^                          │ ~PageLease / release()    │
//    └──────────────────────────┴───────────────────────────┘ release_adopted()
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/ids.h"

namespace levada::kv {

class PagePool;

enum class PageState : std::uint8_t { kFree, kLeased, kAdopted };

// Pages held by one owner outside the tree. Movable; must not outlive the pool.
class PageLease {
 public:
  PageLease() = default;
  PageLease(PageLease&& other) noexcept;
  PageLease& operator=(PageLease&& other) noexcept;
  ~PageLease();

  std::span<const core::PageId> pages() const { return pages_; }
  std::int32_t size() const { return static_cast<std::int32_t>(pages_.size()); }
  // Takes over the other lease's pages, behind the own ones. Both must come from one pool.
  void append(PageLease other);
  // Gives pages [first, first + count) to the tree (leased -> adopted); the rest keeps its order.
  void adopt(std::int32_t first, std::int32_t count);
  // Returns pages [first, first + count) to the free list now; the rest keeps its order.
  void release(std::int32_t first, std::int32_t count);

 private:
  friend class PagePool;
  PageLease(PagePool& pool, std::vector<core::PageId> pages) : pool_(&pool), pages_(std::move(pages)) {}
  std::span<const core::PageId> part(std::int32_t first, std::int32_t count) const;
  void erase(std::int32_t first, std::int32_t count);

  PagePool* pool_ = nullptr;
  std::vector<core::PageId> pages_;
};

class PagePool {
 public:
  explicit PagePool(std::int32_t total_pages);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();  // aborts when a page is still leased or adopted

  // All of them or nothing, lowest ids first, ascending. Zero pages always succeed.
  std::optional<PageLease> try_allocate(std::int32_t pages);
  // Pages the tree gives up.
  void release_adopted(std::span<const core::PageId> pages);
  // The same for the pages first, first + 1, … of which nobody has to list the ids.
  void release_adopted_run(core::PageId first, std::int32_t count);

  std::int32_t total_pages() const { return total_; }
  std::int32_t free_pages() const { return free_; }
  std::int32_t leased_pages() const { return leased_; }
  std::int32_t adopted_pages() const { return adopted_; }
  // Aborts on an id outside the pool.
  PageState state(core::PageId page) const;

  // The first violation found: a page in two states, counts that disagree. O(total / 64).
  Status verify() const;
  // Aborts unless verify() is ok.
  void check() const;

 private:
  friend class PageLease;
  static constexpr std::int32_t kWordPages = 64;
  // Moves every page from one state to another; aborts when one is not in `from`.
  void transition(std::span<const core::PageId> pages, PageState from, PageState to);
  void transition_run(std::int32_t first, std::int32_t count, PageState from, PageState to);
  void transition_word(std::size_t word, std::uint64_t pages, PageState from, PageState to);
  void adopt_leased(std::span<const core::PageId> pages);
  void release_leased(std::span<const core::PageId> pages);

  // One bit per page; a leased page has neither. Bitmaps instead of a stack of free ids: the lowest pages are handed out
  // first, so runs stay contiguous however pages come back, and a run changes state by the word.
  std::vector<std::uint64_t> free_bits_;
  std::vector<std::uint64_t> adopted_bits_;
  std::size_t first_free_word_ = 0;  // no word before it has a free page
  std::int32_t total_ = 0;
  std::int32_t free_ = 0;
  std::int32_t leased_ = 0;
  std::int32_t adopted_ = 0;
};

}  // namespace levada::kv
