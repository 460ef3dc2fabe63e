#include "kv/audit.h"

#include <string>
#include <vector>

namespace levada::kv {

namespace {

const char* name_of(PageState state) {
  switch (state) {
    case PageState::kFree: return "free";
    case PageState::kLeased: return "leased";
    case PageState::kAdopted: return "adopted";
  }
  return "unknown";
}

// Who holds each page, as told by the owners.
class Holders {
 public:
  explicit Holders(const PagePool& pool)
      : pool_(pool), held_(static_cast<std::size_t>(pool.total_pages()), PageState::kFree) {}

  Status claim(std::span<const core::PageId> pages, PageState as) {
    for (const core::PageId page : pages) {
      const std::string name = "page " + std::to_string(core::index(page));
      if (core::index(page) < 0 || core::index(page) >= pool_.total_pages()) {
        return internal_error(name + " is held but outside the pool");
      }
      PageState& held = held_[static_cast<std::size_t>(core::index(page))];
      if (held != PageState::kFree) {
        return internal_error(name + " has two owners: it is " + name_of(held) + " and also " + name_of(as));
      }
      held = as;
    }
    return {};
  }

  Status compare_with_pool() const {
    for (std::int32_t page = 0; page < pool_.total_pages(); ++page) {
      const PageState held = held_[static_cast<std::size_t>(page)];
      const PageState booked = pool_.state(core::PageId{page});
      if (held == booked) continue;
      return internal_error("page " + std::to_string(page) + " is booked as " + name_of(booked) +
                            " but its owners say " + name_of(held));
    }
    return {};
  }

 private:
  const PagePool& pool_;
  std::vector<PageState> held_;
};

}  // namespace

Status audit(const PagePool& pool, const RadixTree& tree, std::span<const PageLease* const> leases) {
  LEVADA_RETURN_IF_ERROR(pool.verify());
  LEVADA_RETURN_IF_ERROR(tree.verify());
  Holders holders(pool);
  for (const PageLease* lease : leases) LEVADA_RETURN_IF_ERROR(holders.claim(lease->pages(), PageState::kLeased));
  Status status;
  tree.visit_pages([&](std::span<const core::PageId> pages) {
    if (status.ok()) status = holders.claim(pages, PageState::kAdopted);
  });
  LEVADA_RETURN_IF_ERROR(status);
  return holders.compare_with_pool();
}

}  // namespace levada::kv
