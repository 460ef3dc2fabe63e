#include "kv/page_pool.h"

#include <algorithm>
#include <bit>
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

PagePool::PagePool(std::int32_t total_pages) : total_(total_pages), free_(total_pages) {
  LEVADA_CHECK(total_pages >= 0, "a pool can't have a negative size");
  const std::int32_t rest = total_pages % kWordPages;
  free_bits_.assign(static_cast<std::size_t>(total_pages / kWordPages), ~std::uint64_t{0});
  if (rest > 0) free_bits_.push_back((std::uint64_t{1} << rest) - 1);
  adopted_bits_.assign(free_bits_.size(), 0);
}

PagePool::~PagePool() {
  LEVADA_CHECK(leased_ == 0, "a PageLease outlives its pool");
  LEVADA_CHECK(adopted_ == 0, "a RadixTree outlives its pool");
}

std::optional<PageLease> PagePool::try_allocate(std::int32_t pages) {
  LEVADA_CHECK(pages >= 0, "can't allocate a negative number of pages");
  if (pages > free_) return std::nullopt;
  std::vector<core::PageId> taken;
  taken.reserve(static_cast<std::size_t>(pages));
  std::size_t word = first_free_word_;
  for (std::int32_t missing = pages; missing > 0; ++word) {
    std::uint64_t& bits = free_bits_[word];
    const auto base = static_cast<std::int32_t>(word) * kWordPages;
    for (; bits != 0 && missing > 0; --missing, bits &= bits - 1) {
      taken.push_back(core::PageId{base + std::countr_zero(bits)});
    }
    first_free_word_ = bits == 0 ? word + 1 : word;
  }
  free_ -= pages;
  leased_ += pages;
  return PageLease(*this, std::move(taken));
}

void PagePool::transition_word(std::size_t word, std::uint64_t pages, PageState from, PageState to) {
  std::uint64_t& free = free_bits_[word];
  std::uint64_t& adopted = adopted_bits_[word];
  const bool as_believed = (free & pages) == (from == PageState::kFree ? pages : 0) &&
                           (adopted & pages) == (from == PageState::kAdopted ? pages : 0);
  LEVADA_CHECK(as_believed, "a page is not in the state its holder believes");
  free = to == PageState::kFree ? free | pages : free & ~pages;
  adopted = to == PageState::kAdopted ? adopted | pages : adopted & ~pages;
  if (to == PageState::kFree) first_free_word_ = std::min(first_free_word_, word);
}

void PagePool::transition_run(std::int32_t first, std::int32_t count, PageState from, PageState to) {
  LEVADA_CHECK(first >= 0 && count <= total_ - first, "a page id outside the pool");
  while (count > 0) {
    const std::int32_t bit = first % kWordPages;
    const std::int32_t run = std::min(count, kWordPages - bit);
    const std::uint64_t ones = ~std::uint64_t{0} >> (kWordPages - run);
    transition_word(static_cast<std::size_t>(first / kWordPages), ones << bit, from, to);
    first += run;
    count -= run;
  }
}

void PagePool::transition(std::span<const core::PageId> pages, PageState from, PageState to) {
  for (std::size_t at = 0; at < pages.size();) {
    const std::int32_t first = core::index(pages[at]);
    std::size_t run = 1;
    while (at + run < pages.size() && core::index(pages[at + run]) == first + static_cast<std::int32_t>(run)) ++run;
    transition_run(first, static_cast<std::int32_t>(run), from, to);
    at += run;
  }
}

void PagePool::adopt_leased(std::span<const core::PageId> pages) {
  transition(pages, PageState::kLeased, PageState::kAdopted);
  leased_ -= static_cast<std::int32_t>(pages.size());
  adopted_ += static_cast<std::int32_t>(pages.size());
}

void PagePool::release_leased(std::span<const core::PageId> pages) {
  transition(pages, PageState::kLeased, PageState::kFree);
  leased_ -= static_cast<std::int32_t>(pages.size());
  free_ += static_cast<std::int32_t>(pages.size());
}

void PagePool::release_adopted(std::span<const core::PageId> pages) {
  transition(pages, PageState::kAdopted, PageState::kFree);
  adopted_ -= static_cast<std::int32_t>(pages.size());
  free_ += static_cast<std::int32_t>(pages.size());
}

void PagePool::release_adopted_run(core::PageId first, std::int32_t count) {
  transition_run(core::index(first), count, PageState::kAdopted, PageState::kFree);
  adopted_ -= count;
  free_ += count;
}

PageState PagePool::state(core::PageId page) const {
  LEVADA_CHECK(core::index(page) >= 0 && core::index(page) < total_, "a page id outside the pool");
  const auto word = static_cast<std::size_t>(core::index(page) / kWordPages);
  const std::uint64_t bit = std::uint64_t{1} << (core::index(page) % kWordPages);
  if ((free_bits_[word] & bit) != 0) return PageState::kFree;
  return (adopted_bits_[word] & bit) != 0 ? PageState::kAdopted : PageState::kLeased;
}

Status PagePool::verify() const {
  std::int32_t free = 0, adopted = 0;
  for (std::size_t word = 0; word < free_bits_.size(); ++word) {
    if (const std::uint64_t both = free_bits_[word] & adopted_bits_[word]; both != 0) {
      const auto page = static_cast<std::int32_t>(word) * kWordPages + std::countr_zero(both);
      return internal_error("page " + std::to_string(page) + " is both free and adopted");
    }
    if (word < first_free_word_ && free_bits_[word] != 0) return internal_error("a free page is out of sight");
    free += std::popcount(free_bits_[word]);
    adopted += std::popcount(adopted_bits_[word]);
  }
  if (free != free_ || adopted != adopted_ || free + leased_ + adopted != total_) {
    return internal_error("free " + std::to_string(free) + " + leased " + std::to_string(leased_) + " + adopted " +
                          std::to_string(adopted) + " must be total " + std::to_string(total_) +
                          "; counters say free " + std::to_string(free_) + ", adopted " + std::to_string(adopted_));
  }
  return {};
}

void PagePool::check() const {
  const Status status = verify();
  LEVADA_CHECK(status.ok(), status.to_string().c_str());
}

}  // namespace levada::kv
