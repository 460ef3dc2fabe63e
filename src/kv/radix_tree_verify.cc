#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "kv/radix_tree.h"
#include "kv/token_scan.h"

namespace levada::kv {

namespace {

std::string describe(const RadixNode& node) {
  return "node [" + std::to_string(node.first_element()) + ", " + std::to_string(node.end_elements) +
         ") of namespace " + std::to_string(static_cast<std::uint32_t>(node.name_space)) +
         (node.bigram ? " (bigrams)" : "");
}

}  // namespace

void RadixTree::visit_pages(const std::function<void(std::span<const core::PageId>)>& visit) const {
  index_.for_each([&](const RadixNode& node) { visit(node.pages()); });
}

Status RadixTree::verify_node(const RadixNode& node) const {
  const std::string name = describe(node);
  if (node.elements <= 0 || node.elements % page_size_ != 0) return internal_error(name + " is not whole pages");
  if (node.pages_count != node.elements / page_size_) return internal_error(name + " has not one page per page of key");
  const RadixNode* parent = node.parent;
  if (parent == nullptr) return internal_error(name + " is stored but has no parent");
  if (parent->name_space != node.name_space || parent->bigram != node.bigram) {
    return internal_error(name + " hangs in another namespace than its parent");
  }
  if (parent->end_elements != node.first_element())
    return internal_error(name + " doesn't begin where its parent ends");
  if (parent->parent == nullptr && !namespaces_.owns(*parent)) return internal_error(name + " has lost its root");
  std::int32_t common = 0;
  if (find_child(*parent, node.tokens(), node.elements, common) != &node || common != node.elements) {
    return internal_error(name + " is shadowed by a sibling with the same first page");
  }
  if ((node.locks == 0) != RecencyList::contains(node)) {
    return internal_error(name + " must be in the recency list exactly when it is unlocked");
  }
  for (const core::PageId page : node.pages()) {
    if (core::index(page) < 0 || core::index(page) >= pool_.total_pages() || pool_.state(page) != PageState::kAdopted) {
      return internal_error(name + " holds page " + std::to_string(core::index(page)) + ", which it never adopted");
    }
  }
  return {};
}

Status RadixTree::verify_recency() const {
  std::unordered_set<const RadixNode*> seen;
  for (const RadixNode* node = recency_.newest(); node != nullptr; node = recency_.next_older(*node)) {
    const RadixNode* parent = node->parent;
    if (parent == nullptr) return internal_error("a root is in the recency list");
    if (parent->parent != nullptr && parent->locks == 0 && !seen.contains(parent)) {
      return internal_error(describe(*node) + " is more recent than its parent");
    }
    if (!seen.insert(node).second) return internal_error(describe(*node) + " is in the recency list twice");
  }
  return {};
}

Status RadixTree::verify_totals() const {
  struct BelowNode {
    std::int32_t children = 0;
    std::int32_t locks = 0;
  };
  std::unordered_map<const RadixNode*, BelowNode> below;
  std::int64_t cached = 0, evictable = 0, top_locks = 0;
  index_.for_each([&](const RadixNode& node) {
    BelowNode& counts = below[node.parent];
    ++counts.children;
    counts.locks += node.locks;
    if (node.parent->parent == nullptr) top_locks += node.locks;
    cached += node.pages_count;
    if (node.locks == 0) evictable += node.pages_count;
  });
  Status status;
  index_.for_each([&](const RadixNode& node) {
    const auto found = below.find(&node);
    const BelowNode counts = found == below.end() ? BelowNode{} : found->second;
    if (counts.children != node.children) status = internal_error(describe(node) + " miscounts its children");
    if (counts.locks > node.locks) status = internal_error(describe(node) + " has fewer locks than its children");
  });
  LEVADA_RETURN_IF_ERROR(status);
  for (const auto& [parent, counts] : below) {
    if (parent->children != counts.children) return internal_error(describe(*parent) + " miscounts its children");
  }
  if (cached != cached_pages_ || evictable != evictable_pages_) {
    return internal_error("nodes hold " + std::to_string(cached) + " pages, " + std::to_string(evictable) +
                          " evictable; counters say " + std::to_string(cached_pages_) + " and " +
                          std::to_string(evictable_pages_));
  }
  if (top_locks != live_locks_) return internal_error("locks of the top nodes don't add up to the living PrefixLocks");
  return {};
}

Status RadixTree::verify() const {
  Status status;
  index_.for_each([&](const RadixNode& node) {
    if (status.ok()) status = verify_node(node);
  });
  LEVADA_RETURN_IF_ERROR(status);
  LEVADA_RETURN_IF_ERROR(verify_recency());
  return verify_totals();
}

void RadixTree::check() const {
  const Status status = verify();
  LEVADA_CHECK(status.ok(), status.to_string().c_str());
}

}  // namespace levada::kv
