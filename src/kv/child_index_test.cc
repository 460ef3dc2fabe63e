#include "kv/child_index.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace levada::kv {
namespace {

RadixNode* find_exactly(const ChildIndex& index, const RadixNode& node) {
  return index.find(node.hash, [&](const RadixNode& candidate) { return &candidate == &node; });
}

TEST(ChildIndex, EqualHashesOfDifferentNodesCoexist) {
  ChildIndex index;
  std::vector<RadixNode> nodes(5);
  for (RadixNode& node : nodes) {
    node.hash = 42;
    index.insert(node);
  }
  for (RadixNode& node : nodes) EXPECT_EQ(find_exactly(index, node), &node);
  index.erase(nodes[2]);
  EXPECT_EQ(find_exactly(index, nodes[2]), nullptr);
  EXPECT_EQ(find_exactly(index, nodes[4]), &nodes[4]);
}

TEST(ChildIndex, ReplacePutsTheSuccessorUnderTheSameHash) {
  ChildIndex index;
  RadixNode node, successor;
  node.hash = successor.hash = 7;
  index.insert(node);
  index.replace(node, successor);
  EXPECT_EQ(find_exactly(index, node), nullptr);
  EXPECT_EQ(find_exactly(index, successor), &successor);
  EXPECT_EQ(index.size(), 1u);
}

TEST(ChildIndex, ErasingKeepsEveryOtherEntryReachable) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    ChildIndex index;
    std::vector<RadixNode> nodes(200);
    std::vector<bool> present(nodes.size(), false);
    // Few homes, at the table's end: long clusters that wrap around.
    for (RadixNode& node : nodes) node.hash = (random() % 7 << 32) + (seed % 2 == 0 ? 60 + random() % 8 : random());
    std::size_t expected = 0;
    for (int step = 0; step < 1000; ++step) {
      const std::size_t at = random() % nodes.size();
      if (present[at]) {
        index.erase(nodes[at]);
        --expected;
      } else {
        index.insert(nodes[at]);
        ++expected;
      }
      present[at] = !present[at];
      ASSERT_EQ(index.size(), expected);
    }
    for (std::size_t at = 0; at < nodes.size(); ++at) {
      ASSERT_EQ(find_exactly(index, nodes[at]), present[at] ? &nodes[at] : nullptr) << "seed " << seed;
    }
    std::size_t visited = 0;
    index.for_each([&](const RadixNode&) { ++visited; });
    EXPECT_EQ(visited, expected);
  }
}

TEST(ChildIndexDeathTest, AbortsOnErasingWhatIsNotThere) {
  ChildIndex index;
  const RadixNode stranger;
  EXPECT_DEATH(index.erase(stranger), "missing in the child index");
}

}  // namespace
}  // namespace levada::kv
