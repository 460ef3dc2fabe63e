#include "store/free_list.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace levada::store {

FreeList::FreeList(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes), free_bytes_(capacity_bytes) {
  LEVADA_CHECK(capacity_bytes > 0 && capacity_bytes % kUnitBytes == 0, "an arena is a whole number of units");
  free_blocks_.emplace(0, capacity_bytes);
}

std::optional<std::uint64_t> FreeList::try_allocate(std::uint64_t bytes) {
  const std::uint64_t wanted = block_bytes(bytes);
  const auto fitting =
      std::find_if(free_blocks_.begin(), free_blocks_.end(), [&](const auto& block) { return block.second >= wanted; });
  if (fitting == free_blocks_.end()) return std::nullopt;
  const auto [offset, length] = *fitting;
  const auto next = free_blocks_.erase(fitting);
  if (length > wanted) free_blocks_.emplace_hint(next, offset + wanted, length - wanted);
  free_bytes_ -= wanted;
  return offset;
}

void FreeList::release(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t length = block_bytes(bytes);
  free_bytes_ += length;
  LEVADA_CHECK(offset + length <= capacity_bytes_, "a block ends beyond the arena");
  auto next = free_blocks_.lower_bound(offset);
  if (next != free_blocks_.end()) {
    LEVADA_CHECK(offset + length <= next->first, "a block is released twice");
    if (offset + length == next->first) {
      length += next->second;
      next = free_blocks_.erase(next);
    }
  }
  if (next != free_blocks_.begin()) {
    const auto before = std::prev(next);
    LEVADA_CHECK(before->first + before->second <= offset, "a block is released twice");
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_blocks_.emplace_hint(next, offset, length);
}

std::uint64_t FreeList::largest_free_bytes() const {
  std::uint64_t largest = 0;
  for (const auto& [offset, length] : free_blocks_) largest = std::max(largest, length);
  return largest;
}

}  // namespace levada::store
