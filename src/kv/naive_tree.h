// What: NaiveTree, the slow and obvious radix tree that the real one is compared with.
// Owner: tests only.
// Thread: one.
// Invariant: bigrams are written out as pairs, keys are copied, children are searched one by one, recency is a time
// stamp and eviction looks at every leaf. It shares no code with RadixTree.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "core/request.h"

namespace levada::kv {

class NaiveTree {
 public:
  using Element = std::pair<std::int32_t, std::int32_t>;
  using Key = std::vector<Element>;

  struct Node {
    Node* parent = nullptr;
    Key key;
    std::vector<std::int32_t> pages;
    std::list<std::unique_ptr<Node>> children;
    std::int64_t used = 0;
    int locks = 0;
  };

  explicit NaiveTree(std::int32_t page_size) : page_size_(page_size) {}

  // Keys of tokens and of bigrams have roots of their own.
  Node* root(const core::CacheNamespace& name, bool bigram) {
    for (auto& [known, root] : roots_) {
      if (known.first == name && known.second == bigram) return root.get();
    }
    roots_.emplace_back(std::pair{name, bigram}, std::make_unique<Node>());
    return roots_.back().second.get();
  }

  static Key elements(const std::vector<std::int32_t>& tokens, bool bigram) {
    Key key;
    for (std::size_t at = 0; at + (bigram ? 1 : 0) < tokens.size(); ++at) {
      key.emplace_back(tokens[at], bigram ? tokens[at + 1] : 0);
    }
    return key;
  }

  struct Found {
    Node* node = nullptr;
    std::size_t in_node = 0;  // elements of `node` that matched
    std::vector<std::int32_t> pages;
  };

  Found find(Node* root, Key key) const {
    key.resize(key.size() / page() * page());
    Found found{root, 0, {}};
    while (!key.empty()) {
      Node* next = nullptr;
      std::size_t common = 0;
      for (const auto& child : found.node->children) {
        common = common_pages(child->key, key);
        next = child.get();
        if (common > 0) break;
      }
      if (common == 0) break;
      found.node = next;
      found.in_node = common;
      for (std::size_t at = 0; at < common / page(); ++at) found.pages.push_back(next->pages[at]);
      key.erase(key.begin(), key.begin() + static_cast<std::ptrdiff_t>(common));
      if (common < next->key.size()) break;
    }
    return found;
  }

  void touch(Node* node) {
    ++now_;
    for (; node->parent != nullptr; node = node->parent) node->used = now_;
  }

  // The node that ends where `found` ends.
  Node* cut(const Found& found) {
    Node* node = found.node;
    if (node->parent == nullptr || found.in_node == node->key.size()) return node;
    auto head = std::make_unique<Node>();
    const auto keep = static_cast<std::ptrdiff_t>(found.in_node);
    const auto keep_pages = keep / page_size_;
    head->parent = node->parent;
    head->key.assign(node->key.begin(), node->key.begin() + keep);
    head->pages.assign(node->pages.begin(), node->pages.begin() + keep_pages);
    head->used = node->used;
    head->locks = node->locks;
    node->key.erase(node->key.begin(), node->key.begin() + keep);
    node->pages.erase(node->pages.begin(), node->pages.begin() + keep_pages);
    Node* result = head.get();
    for (auto& slot : node->parent->children) {
      if (slot.get() != node) continue;
      result->children.push_back(std::move(slot));
      slot = std::move(head);
      break;
    }
    node->parent = result;
    return result;
  }

  // Returns the node at the key's end; `pages` are the key's pages in order.
  Node* insert(Node* root, Key key, const std::vector<std::int32_t>& pages) {
    key.resize(key.size() / page() * page());
    const Found found = find(root, key);
    Node* node = cut(found);
    if (found.pages.size() == key.size() / page()) return node;
    auto leaf = std::make_unique<Node>();
    const auto known = static_cast<std::ptrdiff_t>(found.pages.size());
    leaf->parent = node;
    leaf->key.assign(key.begin() + known * page_size_, key.end());
    leaf->pages.assign(pages.begin() + known, pages.begin() + static_cast<std::ptrdiff_t>(key.size() / page()));
    node->children.push_back(std::move(leaf));
    return node->children.back().get();
  }

  void lock(Node* node) {
    for (; node->parent != nullptr; node = node->parent) ++node->locks;
  }
  void unlock(Node* node) {
    ++now_;
    for (; node->parent != nullptr; node = node->parent) {
      if (--node->locks == 0) node->used = now_;
    }
  }

  // The pages given up, leaf by leaf.
  std::vector<std::int32_t> evict(std::int32_t pages) {
    std::vector<std::int32_t> gone;
    while (static_cast<std::int32_t>(gone.size()) < pages) {
      Node* oldest = nullptr;
      for_each([&](Node& node) {
        if (node.children.empty() && node.locks == 0 && (oldest == nullptr || node.used < oldest->used)) oldest = &node;
      });
      if (oldest == nullptr) break;
      gone.insert(gone.end(), oldest->pages.begin(), oldest->pages.end());
      oldest->parent->children.remove_if([&](const auto& child) { return child.get() == oldest; });
    }
    return gone;
  }

  template <class Visitor>
  void for_each(Visitor visit) {
    for (auto& [name, root] : roots_) {
      for (auto& child : root->children) for_each_below(*child, visit);
    }
  }

 private:
  std::size_t page() const { return static_cast<std::size_t>(page_size_); }
  std::size_t common_pages(const Key& a, const Key& b) const {
    std::size_t common = 0;
    while (common < a.size() && common < b.size() && a[common] == b[common]) ++common;
    return common / page() * page();
  }
  template <class Visitor>
  static void for_each_below(Node& node, Visitor& visit) {
    visit(node);
    for (auto& child : node.children) for_each_below(*child, visit);
  }

  std::int32_t page_size_;
  std::int64_t now_ = 0;
  std::vector<std::pair<std::pair<core::CacheNamespace, bool>, std::unique_ptr<Node>>> roots_;
};

}  // namespace levada::kv
