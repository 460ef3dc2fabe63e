#include "sched/request_pages.h"

#include <algorithm>

#include "base/check.h"

namespace levada::sched {

RequestPages::RequestPages(kv::RadixTree& tree, const kv::PrefixMatch& match) {
  if (match.tokens == 0) return;
  tree.append_pages(match, table_);
  lock_ = tree.lock(match);
  shared_ = size();
}

void RequestPages::grow(kv::PageLease pages) {
  table_.insert(table_.end(), pages.pages().begin(), pages.pages().end());
  lease_.append(std::move(pages));
}

void RequestPages::commit(kv::RadixTree& tree, const kv::TokenKey& key, std::optional<core::StepId> last_reader) {
  const std::int32_t page_size = tree.page_size_tokens();
  if (key.size() / page_size <= shared_) return;
  LEVADA_CHECK(key.size() / page_size <= size(), "only written pages are committed");
  kv::RadixTree::Inserted inserted = tree.insert(key, table_);
  const std::int32_t known = inserted.already_there_tokens / page_size;
  const std::int32_t stored = inserted.stored_tokens / page_size;
  if (stored <= shared_) return;  // the cache is switched off
  LEVADA_CHECK(known >= shared_, "a locked prefix stays in the tree");
  lease_.adopt(duplicates_ + known - shared_, stored - known);
  lock_ = std::move(inserted.lock);
  if (known > shared_) replace_by_cached(tree, known, last_reader);
  shared_ = stored;
}

void RequestPages::replace_by_cached(const kv::RadixTree& tree, std::int32_t known,
                                     std::optional<core::StepId> last_reader) {
  std::vector<core::PageId> cached;
  tree.append_pages(lock_, cached);
  std::copy(cached.begin(), cached.begin() + known, table_.begin());
  duplicates_ += known - shared_;
  if (last_reader)
    duplicates_last_reader_ = *last_reader;
  else
    release_duplicates();
}

void RequestPages::on_step_applied(core::StepId step) {
  if (duplicates_ > 0 && step >= duplicates_last_reader_) release_duplicates();
}

void RequestPages::release_duplicates() {
  lease_.release(0, duplicates_);
  duplicates_ = 0;
}

}  // namespace levada::sched
