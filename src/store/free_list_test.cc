#include "store/free_list.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

namespace levada::store {
namespace {

constexpr std::uint64_t kUnit = FreeList::kUnitBytes;
using Blocks = std::map<std::uint64_t, std::uint64_t>;

TEST(FreeList, BlocksAreWholeUnitsAndAnEmptyObjectTakesOne) {
  EXPECT_EQ(FreeList::block_bytes(0), kUnit);
  EXPECT_EQ(FreeList::block_bytes(1), kUnit);
  EXPECT_EQ(FreeList::block_bytes(kUnit), kUnit);
  EXPECT_EQ(FreeList::block_bytes(kUnit + 1), 2 * kUnit);
}

TEST(FreeList, TakesTheLowestBlockThatFitsAndJoinsNeighbours) {
  // a a | b | c c c | (10 units)
  FreeList list(10 * kUnit);
  const auto a = list.try_allocate(2 * kUnit), b = list.try_allocate(kUnit), c = list.try_allocate(3 * kUnit);
  EXPECT_EQ(a, 0u);
  EXPECT_EQ(b, 2 * kUnit);
  EXPECT_EQ(c, 3 * kUnit);

  list.release(*a, 2 * kUnit);  // . . | b | c c c | . . . .
  EXPECT_EQ(list.try_allocate(3 * kUnit), 6 * kUnit) << "the hole at 0 is too short";
  EXPECT_EQ(list.try_allocate(1), 0u) << "the hole at 0 is the lowest that fits";
  list.release(*b, kUnit);  // x | . . | c c c | d d d | .
  EXPECT_EQ(list.free_blocks(), (Blocks{{kUnit, 2 * kUnit}, {9 * kUnit, kUnit}}));
  list.release(*c, 3 * kUnit);
  list.release(6 * kUnit, 3 * kUnit);
  list.release(0, 1);
  EXPECT_EQ(list.free_blocks(), (Blocks{{0, 10 * kUnit}}));
}

TEST(FreeList, RefusesWhatDoesNotFit) {
  FreeList list(4 * kUnit);
  EXPECT_EQ(list.try_allocate(5 * kUnit), std::nullopt);
  ASSERT_TRUE(list.try_allocate(4 * kUnit).has_value());
  EXPECT_EQ(list.try_allocate(0), std::nullopt);
  EXPECT_EQ(list.largest_free_bytes(), 0u);
}

TEST(FreeListDeathTest, ABlockReleasedTwiceEndsTheProcess) {
  FreeList list(4 * kUnit);
  list.release(*list.try_allocate(kUnit) + 0, kUnit);
  EXPECT_DEATH(list.release(0, kUnit), "released twice");
}

// Invariant 21 of the spec: blocks disjoint, coalesced, accounted; against a byte map that knows nothing of lists.
TEST(FreeListProperty, AnyHistoryKeepsBlocksDisjointCoalescedAndAccounted) {
  EXPECT_TRUE(rc::check([] {
    constexpr std::size_t kUnits = 64;
    FreeList list(kUnits * kUnit);
    std::vector<int> owner(kUnits, 0);  // 0: free
    std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
    int next_owner = 1;
    for (int step = 0; step < 100; ++step) {
      if (!live.empty() && *rc::gen::inRange(0, 3) == 0) {
        const auto at = *rc::gen::inRange<std::size_t>(0, live.size());
        const auto [offset, bytes] = live[at];
        list.release(offset, bytes);
        for (std::uint64_t u = 0; u < FreeList::block_bytes(bytes) / kUnit; ++u) owner[offset / kUnit + u] = 0;
        live.erase(live.begin() + static_cast<long>(at));
      } else {
        const auto bytes = *rc::gen::inRange<std::uint64_t>(0, 12 * kUnit);
        const std::uint64_t units = FreeList::block_bytes(bytes) / kUnit;
        std::optional<std::uint64_t> lowest;  // the naive first fit
        for (std::uint64_t at = 0, run = 0; at < kUnits && !lowest; ++at) {
          run = owner[at] == 0 ? run + 1 : 0;
          if (run == units) lowest = (at + 1 - units) * kUnit;
        }
        const auto offset = list.try_allocate(bytes);
        RC_ASSERT(offset == lowest);
        if (offset) {
          for (std::uint64_t u = 0; u < units; ++u) owner[*offset / kUnit + u] = next_owner;
          ++next_owner;
          live.emplace_back(*offset, bytes);
        }
      }
      Blocks runs;  // maximal runs of free units
      for (std::size_t at = 0; at < kUnits; ++at) {
        if (owner[at] != 0) continue;
        const bool joins = at > 0 && owner[at - 1] == 0;
        if (joins) {
          std::prev(runs.end())->second += kUnit;
        } else {
          runs.emplace(at * kUnit, kUnit);
        }
      }
      RC_ASSERT(list.free_blocks() == runs);
      std::uint64_t free = 0;
      for (const auto& [offset, length] : runs) free += length;
      RC_ASSERT(list.free_bytes() == free);
    }
  }));
}

}  // namespace
}  // namespace levada::store
