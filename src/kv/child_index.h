// What: ChildIndex, one flat hash table for the whole tree from (parent, first page) to the child node.
// Owner: RadixTree.
// Thread: the scheduler's.
// Invariant: open addressing, linear probing, at most 1/2 full, no tombstones: a lookup ends at the first empty slot.
// Equal hashes of different keys may coexist; the caller's predicate decides by tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/radix_node.h"

namespace levada::kv {

class ChildIndex {
 public:
  ChildIndex() : slots_(kMinSlots) {}

  // The node with this hash that `is_it(node)` accepts; null when there is none.
  template <class Predicate>
  RadixNode* find(std::uint64_t hash, Predicate is_it) const {
    for (std::size_t at = home(hash); slots_[at].node != nullptr; at = next(at)) {
      if (slots_[at].hash == hash && is_it(*slots_[at].node)) return slots_[at].node;
    }
    return nullptr;
  }

  // Files the node under node.hash.
  void insert(RadixNode& node) {
    if (2 * (count_ + 1) > slots_.size()) resize(2 * slots_.size());
    place({node.hash, &node});
    ++count_;
  }

  // `successor` takes the place of `node`, under the same hash.
  void replace(const RadixNode& node, RadixNode& successor) { slots_[slot_of(node)].node = &successor; }

  void erase(const RadixNode& node) {
    std::size_t hole = slot_of(node);
    // Closes the gap: an entry moves into the hole unless the hole lies before its home.
    for (std::size_t at = next(hole); slots_[at].node != nullptr; at = next(at)) {
      const std::size_t wanted = home(slots_[at].hash);
      if (((at - wanted) & mask()) >= ((at - hole) & mask())) slots_[std::exchange(hole, at)] = slots_[at];
    }
    slots_[hole] = {};
    --count_;
  }

  // Starts fetching what a later erase() of the node will touch.
  void prefetch(const RadixNode& node) const { __builtin_prefetch(&slots_[home(node.hash)]); }

  std::size_t size() const { return count_; }

  template <class Visitor>
  void for_each(Visitor visit) const {
    for (const Slot& slot : slots_) {
      if (slot.node != nullptr) visit(*slot.node);
    }
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    RadixNode* node = nullptr;
  };
  static constexpr std::size_t kMinSlots = 64;

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t home(std::uint64_t hash) const { return hash & mask(); }
  std::size_t next(std::size_t at) const { return (at + 1) & mask(); }
  std::size_t slot_of(const RadixNode& node) const {
    std::size_t at = home(node.hash);
    while (slots_[at].node != &node) {
      LEVADA_CHECK(slots_[at].node != nullptr, "a node is missing in the child index");
      at = next(at);
    }
    return at;
  }
  void place(Slot slot) {
    std::size_t at = home(slot.hash);
    while (slots_[at].node != nullptr) at = next(at);
    slots_[at] = slot;
  }
  void resize(std::size_t slots) {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
    for (const Slot& slot : old) {
      if (slot.node != nullptr) place(slot);
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace levada::kv
