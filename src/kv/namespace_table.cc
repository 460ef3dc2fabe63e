#include "kv/namespace_table.h"

#include <functional>
#include <string>
#include <utility>

#include "base/check.h"

namespace levada::kv {

NamespaceRef::NamespaceRef(NamespaceRef&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), id_(std::exchange(other.id_, kDefaultNamespace)) {}

NamespaceRef& NamespaceRef::operator=(NamespaceRef&& other) noexcept {
  if (this != &other) {
    if (table_ != nullptr) table_->release(id_);
    table_ = std::exchange(other.table_, nullptr);
    id_ = std::exchange(other.id_, kDefaultNamespace);
  }
  return *this;
}

NamespaceRef::~NamespaceRef() {
  if (table_ != nullptr) table_->release(id_);
}

std::size_t NamespaceTable::Hash::operator()(const core::CacheNamespace& ns) const {
  const std::hash<std::optional<std::string>> field;
  return field(ns.extra_key) * 0x9e3779b97f4a7c15 + field(ns.cache_salt);
}

NamespaceTable::NamespaceTable() {
  const NamespaceRef first = intern({});
  LEVADA_CHECK(first.id() == kDefaultNamespace, "the default namespace has the first id");
}

NamespaceTable::~NamespaceTable() { LEVADA_CHECK(live_refs_ == 0, "a NamespaceRef outlives its tree"); }

NamespaceRef NamespaceTable::intern(const core::CacheNamespace& ns) {
  NamespaceId id{};
  if (const auto known = ids_.find(ns); known != ids_.end()) {
    id = known->second;
  } else {
    if (free_ids_.empty()) {
      free_ids_.push_back(NamespaceId{static_cast<std::uint32_t>(entries_.size())});
      entries_.emplace_back();
    }
    id = free_ids_.back();
    free_ids_.pop_back();
    auto entry = std::make_unique<Entry>();
    entry->name = ns;
    for (std::size_t bigram = 0; bigram < 2; ++bigram) {
      entry->roots[bigram].name_space = id;
      entry->roots[bigram].bigram = bigram == 1;
    }
    entries_[static_cast<std::size_t>(id)] = std::move(entry);
    ids_.emplace(ns, id);
  }
  ++entries_[static_cast<std::size_t>(id)]->refs;
  ++live_refs_;
  return NamespaceRef(*this, id);
}

RadixNode& NamespaceTable::root(NamespaceId id, bool bigram) {
  const auto at = static_cast<std::size_t>(id);
  LEVADA_CHECK(at < entries_.size() && entries_[at] != nullptr, "a NamespaceId nobody keeps alive");
  return entries_[at]->roots[bigram ? 1 : 0];
}

bool NamespaceTable::owns(const RadixNode& root) const {
  const auto at = static_cast<std::size_t>(root.name_space);
  return at < entries_.size() && entries_[at] != nullptr && &entries_[at]->roots[root.bigram ? 1 : 0] == &root;
}

void NamespaceTable::release(NamespaceId id) {
  --entries_[static_cast<std::size_t>(id)]->refs;
  --live_refs_;
  drop_if_unused(id);
}

void NamespaceTable::drop_if_unused(NamespaceId id) {
  const std::unique_ptr<Entry>& entry = entries_[static_cast<std::size_t>(id)];
  const bool used = entry->refs > 0 || entry->roots[0].children > 0 || entry->roots[1].children > 0;
  if (used || id == kDefaultNamespace) return;
  ids_.erase(entry->name);
  entries_[static_cast<std::size_t>(id)].reset();
  free_ids_.push_back(id);
}

}  // namespace levada::kv
