// What: FlatMap, an open-addressing hash map from 64-bit keys to 64-bit values for tables built once and read often.
// Owner: its holder.
// Thread: look-ups from any thread once filled.
// Invariant: at most half full, so that a miss ends within a few slots; keys are never removed. Exists because merges
// are looked up for every adjacent pair of every piece. kEmpty (all bits set) isn't a legal key.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace levada::text {

class FlatMap {
 public:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  explicit FlatMap(std::size_t entries = 0) {
    std::size_t slots = 16;
    while (slots < entries * 2) slots *= 2;
    slots_.assign(slots, Slot{kEmpty, 0});
  }

  // Inserts, or replaces the value of an existing key. No more distinct keys than the constructor was told.
  void set(std::uint64_t key, std::uint64_t value) {
    Slot& slot = slots_[slot_of(key)];
    if (slot.key == kEmpty) LEVADA_CHECK(++size_ * 2 <= slots_.size(), "FlatMap holds more keys than it was made for");
    slot = {key, value};
  }
  // nullptr if absent.
  const std::uint64_t* find(std::uint64_t key) const {
    const Slot& slot = slots_[slot_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }

 private:
  struct Slot {
    std::uint64_t key, value;
  };
  std::size_t slot_of(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace levada::text
