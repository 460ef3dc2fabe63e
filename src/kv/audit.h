// What: audit(), the proof that no page is lost or owned twice: free + leased + adopted == total.
// Owner: none, a pure check.
// Thread: the scheduler's, between steps.
// Invariant: it changes nothing, not even recency, and never aborts on what it finds.
// Runs when idle, at the end of each scenario, and on /debug/audit.
#pragma once

#include <span>

#include "base/status.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"

namespace levada::kv {

// `leases` are all living leases of the pool. The Status names the first violation: in the pool's or the tree's own
// books, a page that two owners hold, or one that is leased or adopted and held by nobody. O(pages + nodes).
Status audit(const PagePool& pool, const RadixTree& tree, std::span<const PageLease* const> leases);

}  // namespace levada::kv
