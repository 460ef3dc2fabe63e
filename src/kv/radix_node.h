// What: RadixNode, a run of key elements with the pages that hold their KV; NodeArena, the memory nodes live in.
// Owner: RadixTree (stored nodes), NamespaceTable (roots, which have no key).
// Thread: the scheduler's.
// Invariant: a node's storage is one compact allocation: its key tokens, then its page ids; never a view of a request.
// A node is in the recency list exactly when it has no locks and is not a root.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/ids.h"
#include "kv/token_key.h"

namespace levada::kv {

struct RadixNode {
  // Longer runs are not looked for: reading their ids costs little beside what they free.
  static constexpr std::size_t kMaxRunPages = 256;

  RadixNode* parent = nullptr;  // null for roots
  std::uint64_t hash = 0;       // of (parent, first page): where the child index keeps it
  std::unique_ptr<std::byte[]> storage;
  std::int32_t elements = 0;
  std::int32_t end_elements = 0;  // from the root to the end of this node
  std::int32_t pages_count = 0;
  std::int32_t children = 0;
  std::int32_t locks = 0;  // PrefixLocks on this node or below it
  NamespaceId name_space{};
  bool bigram = false;
  bool pages_are_run = false;  // first_page, first_page + 1, …: then nobody has to read the ids to give the pages up
  core::PageId first_page = core::kNoPage;
  RadixNode* newer = nullptr;  // recency list; in the arena's free list `older` links free nodes
  RadixNode* older = nullptr;

  std::int32_t first_element() const { return end_elements - elements; }
  std::int32_t tokens_count() const { return elements + static_cast<std::int32_t>(bigram && elements > 0); }
  const core::Token* tokens() const { return reinterpret_cast<const core::Token*>(storage.get()); }
  std::span<const core::PageId> pages() const {
    const auto* first = reinterpret_cast<const core::PageId*>(storage.get()) + tokens_count();
    return {first, static_cast<std::size_t>(pages_count)};
  }
  // Starts fetching what giving up this node will touch: the allocator's header before the storage, and unless they are
  // a run the page ids up to the next header (of a long node only the first ones; the rest streams).
  void prefetch_release() const {
    constexpr std::size_t kLineBytes = 64, kLines = 5;
    __builtin_prefetch(storage.get() - sizeof(std::size_t));
    if (pages_are_run) return;
    const auto ids = pages();
    const auto* first = reinterpret_cast<const std::byte*>(ids.data());
    for (std::size_t at = 0; at < std::min(ids.size_bytes() + kLineBytes, kLines * kLineBytes); at += kLineBytes) {
      __builtin_prefetch(first + at);
    }
  }
  // Replaces key and pages by copies of the given ones, which may lie in the present storage.
  void assign(const core::Token* key, std::int32_t elements_given, std::span<const core::PageId> pages_given) {
    static_assert(sizeof(core::Token) == sizeof(core::PageId) && alignof(core::Token) == alignof(core::PageId));
    const std::size_t key_bytes =
        static_cast<std::size_t>(elements_given + static_cast<std::int32_t>(bigram)) * sizeof(core::Token);
    auto copy = std::make_unique_for_overwrite<std::byte[]>(key_bytes + pages_given.size_bytes());
    std::memcpy(copy.get(), key, key_bytes);
    std::memcpy(copy.get() + key_bytes, pages_given.data(), pages_given.size_bytes());
    storage = std::move(copy);
    elements = elements_given;
    pages_count = static_cast<std::int32_t>(pages_given.size());
    first_page = pages_given.empty() ? core::kNoPage : pages().front();
    pages_are_run = pages_given.size() <= kMaxRunPages;
    for (std::size_t i = 1; i < pages_given.size() && pages_are_run; ++i) {
      pages_are_run = core::index(pages()[i]) == core::index(first_page) + static_cast<std::int32_t>(i);
    }
  }
};

// Nodes at stable addresses, reused. Keeps the memory of the largest tree seen, never more nodes than pages.
class NodeArena {
 public:
  RadixNode* make() {
    if (free_ == nullptr) grow();
    RadixNode* node = free_;
    free_ = node->older;
    node->older = nullptr;
    return node;
  }
  void recycle(RadixNode* node) {
    *node = RadixNode{};
    node->older = free_;
    free_ = node;
  }

 private:
  void grow() {
    constexpr std::size_t kNodesPerChunk = 256;
    chunks_.push_back(std::make_unique<RadixNode[]>(kNodesPerChunk));
    for (std::size_t at = kNodesPerChunk; at-- > 0;) {
      chunks_.back()[at].older = free_;
      free_ = &chunks_.back()[at];
    }
  }
  std::vector<std::unique_ptr<RadixNode[]>> chunks_;
  RadixNode* free_ = nullptr;
};

}  // namespace levada::kv
