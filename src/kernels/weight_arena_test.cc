#include "kernels/weight_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace levada::kernels {
namespace {

// [ 100 | 1 | 3 MiB | 70 MiB in a chunk of its own | 5 ]
TEST(WeightArena, MatricesDontOverlapBeginOnALineAndOutliveTheArena) {
  const std::vector<std::size_t> sizes = {100, 1, std::size_t{3} << 20, std::size_t{70} << 20, 5};
  std::vector<std::shared_ptr<std::byte>> taken;
  {
    WeightArena arena;
    for (const std::size_t size : sizes) taken.push_back(arena.take(size));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(taken[i].get()) % 64, 0u);
    std::memset(taken[i].get(), static_cast<int>(i + 1), sizes[i]);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(taken[i].get()[0], static_cast<std::byte>(i + 1));
    EXPECT_EQ(taken[i].get()[sizes[i] - 1], static_cast<std::byte>(i + 1));
  }
  taken.erase(taken.begin(), taken.begin() + 2);
  EXPECT_EQ(taken.front().get()[0], static_cast<std::byte>(3)) << "its chunk went with its neighbours";
}

TEST(WeightArena, NeighboursLieSideBySide) {
  WeightArena arena;
  const auto first = arena.take(64), second = arena.take(64);
  EXPECT_EQ(second.get(), first.get() + 64);
}

}  // namespace
}  // namespace levada::kernels
