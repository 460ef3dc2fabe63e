#include "kv/draft_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace levada::kv {

DraftLedger::DraftLedger(std::int32_t total_pages, std::int32_t page_size_tokens)
    : pages_(static_cast<std::size_t>(total_pages)), page_size_(page_size_tokens) {}

void DraftLedger::on_written(std::span<const core::PageId> table, std::int32_t first, std::int32_t end,
                             core::DraftVersion draft) {
  for (std::int32_t p = first / page_size_; p * page_size_ < end; ++p) {
    Page& page = pages_[static_cast<std::size_t>(core::index(table[static_cast<std::size_t>(p)]))];
    const std::int32_t offset = std::max(first - p * page_size_, 0);
    if (offset == 0 || page.draft != draft) page = {draft, offset};
  }
}

std::int32_t DraftLedger::readable_from(std::span<const core::PageId> table, std::int32_t end,
                                        core::DraftVersion draft) const {
  if (draft == core::kNoDraft) return end;
  std::int32_t from = end;
  for (std::int32_t p = (end + page_size_ - 1) / page_size_ - 1; p >= 0; --p) {
    const Page& page = pages_[static_cast<std::size_t>(core::index(table[static_cast<std::size_t>(p)]))];
    if (page.draft != draft) break;
    from = std::min(from, p * page_size_ + page.first);
    if (page.first > 0) break;
  }
  return from;
}

}  // namespace levada::kv
