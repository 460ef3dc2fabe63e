// What: how many pages the KV pool gets: the one place where capacity is decided (law 5).
// Owner: none, a pure function.
// Thread: any.
// Invariant: at least one page is chosen; a pool that would hold none, or would not fit the free memory, is refused with
// the numbers and the remedy.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"
#include "core/kv_layout.h"

namespace levada::engine {

inline constexpr std::int64_t kDefaultContexts = 8;

struct KvBudget {
  std::optional<std::int64_t> max_total_tokens;  // asked for by the user
  double mem_fraction_static = 0.5;
  std::int64_t free_bytes = 0;     // after weights and workspaces
  std::int64_t reserve_bytes = 0;  // of them, not for the pool: what is allocated after it
  std::int32_t context_length_tokens = 0;
  std::optional<std::int64_t> max_contexts = kDefaultContexts;  // an unset max_total_tokens stops there
};

// Pages to allocate. Unset max_total_tokens: what the memory share allows, at most max_contexts whole contexts.
// kResourceExhausted when the pool would not fit the free memory.
Result<std::int32_t> choose_kv_pages(const core::KvLayout& layout, const KvBudget& budget);

}  // namespace levada::engine
