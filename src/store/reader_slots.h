// What: ReaderSlots, the small shared table in which one reading process says what it is looking at (hazard pointers).
// Owner: the Arena makes one per reader and scans it; the reader writes it through its own mapping.
// Thread: the reader's threads take and clear slots; the owner only reads.
// Invariant: a reader publishes a slot BEFORE it looks at the guard again, the owner retracts the guard BEFORE it looks
// at the slots: one of the two always sees the other. A table full of nonsense can only keep memory from being freed,
// and only until its reader's connection ends.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace levada::store {

struct ReaderSlots {
  static constexpr std::size_t kSlots = 512;
  // The guard with the entry's number, so that one word names the object; 0 is an empty slot.
  static std::uint64_t name(std::uint32_t entry, std::uint64_t guard) { return guard << 20 | entry; }

  // The number of the slot taken; nullopt if all are in use.
  std::optional<std::size_t> try_take(std::uint64_t object, std::size_t start) {
    for (std::size_t i = 0; i < kSlots; ++i) {
      const std::size_t slot = (start + i) % kSlots;
      std::uint64_t empty = 0;
      if (words[slot].load(std::memory_order_relaxed) == 0 &&
          words[slot].compare_exchange_strong(empty, object, std::memory_order_seq_cst))
        return slot;
    }
    return std::nullopt;
  }
  void clear(std::size_t slot) { words[slot].store(0, std::memory_order_release); }
  bool holds(std::uint64_t object) const {
    for (const auto& word : words)
      if (word.load(std::memory_order_seq_cst) == object) return true;
    return false;
  }

  std::array<std::atomic<std::uint64_t>, kSlots> words;
};

}  // namespace levada::store
