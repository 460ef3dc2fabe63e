#include "kv/page_pool.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"

namespace levada::kv {

PageLease::PageLease(PageLease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), pages_(std::exchange(other.pages_, {})) {}

PageLease& PageLease::operator=(PageLease&& other) noexcept {
  if (this != &other) {
    if (pool_ != nullptr) pool_->release_leased(pages_);
    pool_ = std::exchange(other.pool_, nullptr);
    pages_ = std::exchange(other.pages_, {});
  }
  return *this;
}

PageLease::~PageLease() {
  if (pool_ != nullptr) pool_->release_leased(pages_);
}

void PageLease::append(PageLease other) {
  if (other.pool_ == nullptr) return;
  LEVADA_CHECK(pool_ == nullptr || pool_ == other.pool_, "leases of different pools don't mix");
  pool_ = other.pool_;
  pages_.insert(pages_.end(), other.pages_.begin(), other.pages_.end());
  other.pages_.clear();
}

std::span<const core::PageId> PageLease::part(std::int32_t first, std::int32_t count) const {
  LEVADA_CHECK(first >= 0 && count >= 0 && first <= size() && count <= size() - first, "a range outside the lease");
  return pages().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

void PageLease::erase(std::int32_t first, std::int32_t count) {
  pages_.erase(pages_.begin() + first, pages_.begin() + first + count);
}

void PageLease::adopt(std::int32_t first, std::int32_t count) {
  const auto pages = part(first, count);
  if (pages.empty()) return;
  pool_->adopt_leased(pages);
  erase(first, count);
}

void PageLease::release(std::int32_t first, std::int32_t count) {
  const auto pages = part(first, count);
  if (pages.empty()) return;
  pool_->release_leased(pages);
  erase(first, count);
}

PagePool::PagePool(std::int32_t total_pages) {
  LEVADA_CHECK(total_pages >= 0, "a pool can't have a negative size");
  states_.assign(static_cast<std::size_t>(total_pages), PageState::kFree);
  // Never grows again: releasing pages allocates nothing.
  free_.reserve(static_cast<std::size_t>(total_pages));
  for (std::int32_t page = 0; page < total_pages; ++page) free_.push_back(core::PageId{page});
}

PagePool::~PagePool() {
  LEVADA_CHECK(leased_ == 0, "a PageLease outlives its pool");
  LEVADA_CHECK(adopted_ == 0, "a RadixTree outlives its pool");
}

std::optional<PageLease> PagePool::try_allocate(std::int32_t pages) {
  LEVADA_CHECK(pages >= 0, "can't allocate a negative number of pages");
  if (pages > free_pages()) return std::nullopt;
  std::vector<core::PageId> taken(free_.end() - pages, free_.end());
  free_.resize(free_.size() - taken.size());
  transition(taken, PageState::kFree, PageState::kLeased);
  leased_ += pages;
  return PageLease(*this, std::move(taken));
}

bool PagePool::try_transition_run(const core::PageId* pages, PageState from, PageState to) {
  constexpr std::uint64_t kEachByte = 0x0101010101010101;
  static_assert(sizeof(PageState) * kRunPages == sizeof(kEachByte));
  const std::int32_t first = core::index(pages[0]);
  if (first < 0 || first > total_pages() - kRunPages) return false;
  // Two ids at a time, against {first, first + 1}, {first + 2, first + 3}, ...
  static_assert(std::endian::native == std::endian::little, "the first of two ids is the low half of the word");
  std::uint64_t expected = static_cast<std::uint32_t>(first) | static_cast<std::uint64_t>(first + 1) << 32;
  std::uint64_t difference = 0;
#pragma GCC unroll 4
  for (std::int32_t at = 0; at < kRunPages; at += 2, expected += 0x0000000200000002) {
    std::uint64_t ids;
    std::memcpy(&ids, pages + at, sizeof(ids));
    difference |= ids ^ expected;
  }
  if (difference != 0) return false;
  std::uint64_t states;
  std::memcpy(&states, states_.data() + first, sizeof(states));
  if (states != kEachByte * static_cast<std::uint64_t>(from)) return false;
  states = kEachByte * static_cast<std::uint64_t>(to);
  std::memcpy(states_.data() + first, &states, sizeof(states));
  return true;
}

void PagePool::transition(std::span<const core::PageId> pages, PageState from, PageState to) {
  const auto total = static_cast<std::uint32_t>(total_pages());
  PageState* states = states_.data();
  std::size_t at = 0;
  while (at < pages.size()) {
    if (at + kRunPages <= pages.size() && try_transition_run(&pages[at], from, to)) {
      at += kRunPages;
      continue;
    }
    for (const std::size_t stop = std::min<std::size_t>(at + kRunPages, pages.size()); at < stop; ++at) {
      const auto page = static_cast<std::uint32_t>(core::index(pages[at]));
      LEVADA_CHECK(page < total, "a page id outside the pool");
      LEVADA_CHECK(states[page] == from, "a page is not in the state its holder believes");
      states[page] = to;
    }
  }
}

void PagePool::adopt_leased(std::span<const core::PageId> pages) {
  transition(pages, PageState::kLeased, PageState::kAdopted);
  leased_ -= static_cast<std::int32_t>(pages.size());
  adopted_ += static_cast<std::int32_t>(pages.size());
}

void PagePool::release_leased(std::span<const core::PageId> pages) {
  transition(pages, PageState::kLeased, PageState::kFree);
  free_.insert(free_.end(), pages.begin(), pages.end());
  leased_ -= static_cast<std::int32_t>(pages.size());
}

void PagePool::release_adopted(std::span<const core::PageId> pages) {
  transition(pages, PageState::kAdopted, PageState::kFree);
  free_.insert(free_.end(), pages.begin(), pages.end());
  adopted_ -= static_cast<std::int32_t>(pages.size());
}

PageState PagePool::state(core::PageId page) const {
  LEVADA_CHECK(core::index(page) >= 0 && core::index(page) < total_pages(), "a page id outside the pool");
  return states_[static_cast<std::size_t>(core::index(page))];
}

Status PagePool::verify() const {
  std::vector<bool> in_free_list(states_.size(), false);
  for (const core::PageId page : free_) {
    const std::string name = "page " + std::to_string(core::index(page));
    if (core::index(page) < 0 || core::index(page) >= total_pages()) {
      return internal_error(name + " in the free list is outside the pool");
    }
    const auto at = static_cast<std::size_t>(core::index(page));
    if (in_free_list[at]) return internal_error(name + " is in the free list twice");
    if (states_[at] != PageState::kFree) return internal_error(name + " is in the free list but held");
    in_free_list[at] = true;
  }
  std::int32_t leased = 0, adopted = 0;
  for (const PageState state : states_) {
    leased += state == PageState::kLeased;
    adopted += state == PageState::kAdopted;
  }
  if (leased != leased_ || adopted != adopted_ || free_pages() + leased + adopted != total_pages()) {
    return internal_error("free " + std::to_string(free_pages()) + " + leased " + std::to_string(leased) +
                          " + adopted " + std::to_string(adopted) + " must be total " + std::to_string(total_pages()) +
                          "; counters say leased " + std::to_string(leased_) + ", adopted " + std::to_string(adopted_));
  }
  return {};
}

void PagePool::check() const {
  const Status status = verify();
  LEVADA_CHECK(status.ok(), status.to_string().c_str());
}

}  // namespace levada::kv
