// What: FreeList, the arena's book of free space: sorted, first fit by lowest offset, neighbours joined.
// Owner: the Arena.
// Thread: one at a time (the Arena's mutex).
// Invariant: blocks are disjoint, start at and are rounded up to 512 bytes, no two free blocks touch, and
// free_bytes() + the handed-out blocks == capacity(). It knows offsets only, never memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace levada::store {

class FreeList {
 public:
  static constexpr std::uint64_t kUnitBytes = 512;
  // What an object of `bytes` takes: a whole number of units; an empty object takes one.
  static constexpr std::uint64_t block_bytes(std::uint64_t bytes) {
    return bytes == 0 ? kUnitBytes : (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }

  // REQUIRES: capacity_bytes is a positive multiple of kUnitBytes.
  explicit FreeList(std::uint64_t capacity_bytes);

  // The offset of a block for `bytes`; nullopt if no free block is long enough. REQUIRES: bytes < 2^63.
  std::optional<std::uint64_t> try_allocate(std::uint64_t bytes);
  // Takes back what try_allocate(bytes) gave at `offset`. REQUIRES: just that, once.
  void release(std::uint64_t offset, std::uint64_t bytes);

  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t largest_free_bytes() const;
  // Offset to length of every free block, ascending.
  const std::map<std::uint64_t, std::uint64_t>& free_blocks() const { return free_blocks_; }

 private:
  std::uint64_t capacity_bytes_;
  std::uint64_t free_bytes_;
  std::map<std::uint64_t, std::uint64_t> free_blocks_;
};

}  // namespace levada::store
