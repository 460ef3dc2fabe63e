// What: RequestPages, the pages one request reads and writes: the tree's for its committed prefix, its own behind them.
// Owner: the request's state.
// Thread: the scheduler's.
// Invariant: table_[0, shared_) are the tree's and locked; table_[shared_, size) are the lease's, in order, behind the
// duplicates_ that plans in flight may still read. Nothing is given back while such a plan is in flight (law 3).
//
//   lease:  | duplicates_ (left the table) | own pages = table_[shared_ ..] |
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "kv/page_pool.h"
#include "kv/radix_tree.h"

namespace levada::sched {

class RequestPages {
 public:
  RequestPages() = default;
  // Starts with a cached prefix, locked for the life of this object. The tree must outlive it.
  RequestPages(kv::RadixTree& tree, const kv::PrefixMatch& match);

  // The block table: page p covers tokens [p * page size, (p + 1) * page size).
  std::span<const core::PageId> table() const { return table_; }
  std::int32_t size() const { return static_cast<std::int32_t>(table_.size()); }
  std::int32_t shared_pages() const { return shared_; }
  const kv::PageLease& lease() const { return lease_; }
  // Duplicates wait for a plan in flight.
  bool release_is_coming() const { return duplicates_ > 0; }

  void grow(kv::PageLease pages);
  // Gives the whole pages of `key`, all written, to the tree. Pages that the tree had already are replaced in the table
  // by the tree's; the own ones go when `last_reader`, the last plan submitted with the old table, has been applied;
  // unset: at once.
  void commit(kv::RadixTree& tree, const kv::TokenKey& key, std::optional<core::StepId> last_reader);
  void on_step_applied(core::StepId step);

 private:
  void replace_by_cached(const kv::RadixTree& tree, std::int32_t known, std::optional<core::StepId> last_reader);
  void release_duplicates();

  std::vector<core::PageId> table_;
  std::int32_t shared_ = 0;
  std::int32_t duplicates_ = 0;
  core::StepId duplicates_last_reader_{};
  kv::PageLease lease_;
  kv::PrefixLock lock_;
};

}  // namespace levada::sched
