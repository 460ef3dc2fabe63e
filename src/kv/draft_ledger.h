// What: DraftLedger, whose numbers lie in the draft planes of every page: which draft wrote them, and from which token of
// the page on.
// Owner: the Brain.
// Thread: the scheduler's.
// Invariant: identity is per plane group (law 8): a page that is a hit for the target may hold nothing for the present draft,
// which then starts to see behind it. A page's first token is written first, and what is written under another draft, or
// under none, ends what was there before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace levada::kv {

class DraftLedger {
 public:
  DraftLedger(std::int32_t total_pages, std::int32_t page_size_tokens);

  // A step writes tokens [first, end) of a request whose block table is `table`, and `draft` their draft planes.
  void on_written(std::span<const core::PageId> table, std::int32_t first, std::int32_t end, core::DraftVersion draft);
  // The first of the tokens before `end` from which on `draft` has written all; `end` if the last one isn't its own.
  std::int32_t readable_from(std::span<const core::PageId> table, std::int32_t end, core::DraftVersion draft) const;

 private:
  struct Page {
    core::DraftVersion draft = core::kNoDraft;
    std::int32_t first = 0;  // token in the page
  };
  std::vector<Page> pages_;
  std::int32_t page_size_;
};

}  // namespace levada::kv
