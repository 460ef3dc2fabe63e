#include "kv/radix_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "kv/token_scan.h"

namespace levada::kv {

PrefixLock::PrefixLock(PrefixLock&& other) noexcept
    : tree_(std::exchange(other.tree_, nullptr)), node_(std::exchange(other.node_, nullptr)) {}

PrefixLock& PrefixLock::operator=(PrefixLock&& other) noexcept {
  if (this != &other) {
    if (node_ != nullptr) tree_->unlock_path(*node_);
    tree_ = std::exchange(other.tree_, nullptr);
    node_ = std::exchange(other.node_, nullptr);
  }
  return *this;
}

PrefixLock::~PrefixLock() {
  if (node_ != nullptr) tree_->unlock_path(*node_);
}

RadixTree::RadixTree(PagePool& pool, std::int32_t page_size_tokens, bool enabled)
    : pool_(pool), page_size_(page_size_tokens), enabled_(enabled) {
  LEVADA_CHECK(page_size_tokens >= 1, "a page holds at least one token");
}

RadixTree::~RadixTree() {
  LEVADA_CHECK(live_locks_ == 0, "a PrefixLock outlives its tree");
  clear();
}

RadixNode* RadixTree::find_child(const RadixNode& parent, const core::Token* tokens, std::int32_t elements,
                                 std::int32_t& common) const {
  const std::int32_t overlap = parent.bigram ? 1 : 0;
  return index_.find(child_hash(&parent, tokens, page_size_ + overlap), [&](const RadixNode& child) {
    if (child.parent != &parent) return false;
    const std::int32_t limit = std::min(elements, child.elements);
    const std::int32_t equal = common_prefix(child.tokens(), tokens, limit + overlap) - overlap;
    common = equal == limit ? limit : whole_pages(std::max(equal, 0));
    return common > 0;
  });
}

RadixTree::Walk RadixTree::walk(const TokenKey& key) {
  Walk at{&namespaces_.root(key.name_space(), key.bigram()), 0};
  const std::int32_t wanted = whole_pages(key.size());
  while (at.elements < wanted) {
    std::int32_t common = 0;
    RadixNode* child = find_child(*at.node, key.tokens().data() + at.elements, wanted - at.elements, common);
    if (child == nullptr) break;
    at = {child, at.elements + common};
    if (common < child->elements) break;
  }
  return at;
}

PrefixMatch RadixTree::match(const TokenKey& key) {
  if (!enabled_) return {};
  const Walk found = walk(key);
  if (found.elements == 0) return {};
  touch_path(found.node);
  return {found.elements, found.node};
}

void RadixTree::touch_path(RadixNode* node) {
  // Upwards, so that parents end up before their children. Above the first locked node all are locked.
  for (; node->parent != nullptr && node->locks == 0; node = node->parent) recency_.move_to_newest(*node);
}

void RadixTree::append_path(const RadixNode* node, std::int32_t elements, std::vector<core::PageId>& pages) const {
  LEVADA_CHECK(elements >= 0 && elements % page_size_ == 0, "a match ends on a page border");
  if (elements == 0) return;
  LEVADA_CHECK(node != nullptr && elements <= node->end_elements, "a match may be lowered, never raised");
  const std::size_t first = pages.size();
  pages.resize(first + static_cast<std::size_t>(elements / page_size_));
  for (; node->parent != nullptr; node = node->parent) {
    if (node->first_element() >= elements) continue;
    const std::int32_t covered = std::min(elements, node->end_elements) - node->first_element();
    const auto part = node->pages().first(static_cast<std::size_t>(covered / page_size_));
    std::copy(part.begin(), part.end(),
              pages.begin() + static_cast<std::ptrdiff_t>(first) + node->first_element() / page_size_);
  }
}

void RadixTree::append_pages(const PrefixMatch& match, std::vector<core::PageId>& pages) const {
  append_path(match.node, match.tokens, pages);
}

void RadixTree::append_pages(const PrefixLock& lock, std::vector<core::PageId>& pages) const {
  append_path(lock.node_, lock.tokens(), pages);
}

RadixNode& RadixTree::split(RadixNode& node, std::int32_t elements) {
  LEVADA_CHECK(elements > 0 && elements < node.elements && elements % page_size_ == 0, "nodes are cut at page borders");
  const auto head_pages = static_cast<std::size_t>(elements / page_size_);
  RadixNode& head = *arena_.make();
  head.parent = node.parent;
  head.hash = node.hash;
  head.end_elements = node.first_element() + elements;
  head.children = 1;
  head.locks = node.locks;
  head.name_space = node.name_space;
  head.bigram = node.bigram;
  head.assign(node.tokens(), elements, node.pages().first(head_pages));
  index_.replace(node, head);
  // The tail stays the same object: locks and children keep pointing to it.
  node.parent = &head;
  node.assign(node.tokens() + elements, node.elements - elements, node.pages().subspan(head_pages));
  node.hash = child_hash(&head, node.tokens(), page_size_ + static_cast<std::int32_t>(node.bigram));
  index_.insert(node);
  if (RecencyList::contains(node)) recency_.insert_before(node, head);
  return head;
}

RadixNode& RadixTree::node_ending_at(RadixNode& node, std::int32_t elements) {
  return elements == node.end_elements ? node : split(node, elements - node.first_element());
}

RadixNode& RadixTree::add_child(RadixNode& parent, const TokenKey& rest, std::span<const core::PageId> pages) {
  RadixNode& child = *arena_.make();
  child.parent = &parent;
  child.end_elements = parent.end_elements + rest.size();
  child.name_space = parent.name_space;
  child.bigram = parent.bigram;
  child.assign(rest.tokens().data(), rest.size(), pages);
  child.hash = child_hash(&parent, child.tokens(), page_size_ + static_cast<std::int32_t>(child.bigram));
  index_.insert(child);
  ++parent.children;
  cached_pages_ += child.pages_count;
  // Evictable until its first lock, which insert() takes at once.
  recency_.push_newest(child);
  evictable_pages_ += child.pages_count;
  return child;
}

RadixTree::Inserted RadixTree::insert(const TokenKey& key, std::span<const core::PageId> pages) {
  Inserted result;
  const std::int32_t wanted = whole_pages(key.size());
  if (!enabled_ || wanted == 0) return result;
  LEVADA_CHECK(static_cast<std::int32_t>(pages.size()) >= wanted / page_size_,
               "every whole page of the key has a page");
  const Walk found = walk(key);
  RadixNode* node = found.elements == 0 ? found.node : &node_ending_at(*found.node, found.elements);
  if (found.elements < wanted) {
    const auto first = static_cast<std::size_t>(found.elements / page_size_);
    const auto count = static_cast<std::size_t>((wanted - found.elements) / page_size_);
    node = &add_child(*node, key.slice(found.elements, wanted - found.elements), pages.subspan(first, count));
  }
  result.already_there_tokens = found.elements;
  result.stored_tokens = wanted;
  result.lock = lock_path(*node);
  return result;
}

PrefixLock RadixTree::lock(const PrefixMatch& match) {
  LEVADA_CHECK(match.tokens >= 0 && match.tokens % page_size_ == 0, "a match ends on a page border");
  if (match.tokens == 0) return {};
  RadixNode* node = match.node;
  LEVADA_CHECK(node != nullptr && match.tokens <= node->end_elements, "a match may be lowered, never raised");
  while (node->first_element() >= match.tokens) node = node->parent;
  return lock_path(node_ending_at(*node, match.tokens));
}

PrefixLock RadixTree::lock_path(RadixNode& locked) {
  for (RadixNode* node = &locked; node->parent != nullptr; node = node->parent) {
    if (node->locks++ > 0) continue;
    recency_.remove(*node);
    evictable_pages_ -= node->pages_count;
  }
  ++live_locks_;
  return PrefixLock(*this, locked);
}

void RadixTree::unlock_path(RadixNode& locked) {
  for (RadixNode* node = &locked; node->parent != nullptr; node = node->parent) {
    if (--node->locks > 0) continue;
    recency_.push_newest(*node);
    evictable_pages_ += node->pages_count;
  }
  --live_locks_;
}

void RadixTree::evict_leaf(RadixNode& leaf) {
  LEVADA_CHECK(leaf.children == 0 && leaf.locks == 0, "only unlocked leaves are evicted");
  if (leaf.pages_are_run) {
    pool_.release_adopted_run(leaf.first_page, leaf.pages_count);
  } else {
    pool_.release_adopted(leaf.pages());
  }
  cached_pages_ -= leaf.pages_count;
  evictable_pages_ -= leaf.pages_count;
  evicted_tokens_ += leaf.elements;
  recency_.remove(leaf);
  index_.erase(leaf);
  RadixNode& parent = *leaf.parent;
  arena_.recycle(&leaf);
  if (--parent.children == 0 && parent.parent == nullptr) namespaces_.on_root_childless(parent.name_space);
}

std::int32_t RadixTree::evict(std::int32_t pages) {
  std::int32_t freed = 0;
  while (freed < pages) {
    RadixNode* oldest = recency_.oldest();
    if (oldest == nullptr) break;
    if (const RadixNode* next = recency_.next_newer(*oldest); next != nullptr) {
      // Evicted nodes are cold by nature: the memory of the next one comes while this one is worked on, and the one after
      // it is fetched so that its addresses are known by then.
      index_.prefetch(*next);
      next->prefetch_release();
      __builtin_prefetch(next->newer);
      __builtin_prefetch(reinterpret_cast<const std::byte*>(next->newer) + 64);
    }
    freed += oldest->pages_count;
    evict_leaf(*oldest);
  }
  return freed;
}

std::int32_t RadixTree::clear() { return evict(std::numeric_limits<std::int32_t>::max()); }

}  // namespace levada::kv
