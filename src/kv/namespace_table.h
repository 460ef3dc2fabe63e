// What: NamespaceTable, cache namespaces under small ids, each with the roots of its two trees (tokens and bigrams).
// Owner: RadixTree; NamespaceRef is how a request keeps an id valid.
// Thread: the scheduler's.
// Invariant: two ids are equal exactly when both tagged fields are (law 8; absent is not empty). A namespace lives
// while a NamespaceRef or a stored node needs it, so names from outside can't pile up. The default namespace lives
// always.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/request.h"
#include "kv/radix_node.h"
#include "kv/token_key.h"

namespace levada::kv {

class NamespaceTable;

// Keeps a NamespaceId valid while alive. Movable; must not outlive the tree.
class NamespaceRef {
 public:
  NamespaceRef() = default;
  NamespaceRef(NamespaceRef&& other) noexcept;
  NamespaceRef& operator=(NamespaceRef&& other) noexcept;
  ~NamespaceRef();
  // The default namespace when empty.
  NamespaceId id() const { return id_; }

 private:
  friend class NamespaceTable;
  NamespaceRef(NamespaceTable& table, NamespaceId id) : table_(&table), id_(id) {}
  NamespaceTable* table_ = nullptr;
  NamespaceId id_ = kDefaultNamespace;
};

class NamespaceTable {
 public:
  NamespaceTable();
  NamespaceTable(const NamespaceTable&) = delete;
  NamespaceTable& operator=(const NamespaceTable&) = delete;
  ~NamespaceTable();  // aborts when a NamespaceRef is still alive

  NamespaceRef intern(const core::CacheNamespace& ns);
  // Aborts on an id that no NamespaceRef and no node keeps valid.
  RadixNode& root(NamespaceId id, bool bigram);
  // To be called when a root has lost its last child: drops the namespace unless something needs it.
  void on_root_childless(NamespaceId id) { drop_if_unused(id); }
  // Namespaces alive, the default one included.
  std::int32_t size() const { return static_cast<std::int32_t>(ids_.size()); }
  bool owns(const RadixNode& root) const;

 private:
  friend class NamespaceRef;
  struct Hash {
    std::size_t operator()(const core::CacheNamespace& ns) const;
  };
  struct Entry {
    core::CacheNamespace name;
    std::int64_t refs = 0;
    std::array<RadixNode, 2> roots;  // [bigram]
  };
  void release(NamespaceId id);
  void drop_if_unused(NamespaceId id);

  std::unordered_map<core::CacheNamespace, NamespaceId, Hash> ids_;
  std::vector<std::unique_ptr<Entry>> entries_;  // by id; null: the id is free
  std::vector<NamespaceId> free_ids_;
  std::int64_t live_refs_ = 0;
};

}  // namespace levada::kv
