// What a match may cost: no allocation, and time that grows with nodes and tokens, never with their product.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>

#include "kv/test_cache.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
}  // namespace

// Counts every allocation of this test program.
void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace levada::kv {
namespace {

constexpr std::int32_t kTokens = 65536;

// One path of equally long nodes, made by inserting growing prefixes.
void put_chain(TestCache& cache, const TokenKey& key, std::int32_t nodes) {
  for (std::int32_t node = 1; node <= nodes; ++node) (void)cache.put(key.slice(0, key.size() / nodes * node));
  ASSERT_EQ(cache.tree.node_count(), nodes);
}

TEST(RadixTreeCost, OneMatchAllocatesNothing) {
  for (const std::int32_t page_size : {1, 64}) {
    for (const bool bigram : {false, true}) {
      TestCache cache(3 * kTokens / page_size, page_size);
      const Tokens tokens = run(0, kTokens + (bigram ? 1 : 0));
      const TokenKey key(tokens, kDefaultNamespace, bigram);
      put_chain(cache, key, 16);
      const std::int64_t before = allocations.load();
      const PrefixMatch whole = cache.tree.match(key);
      const PrefixMatch inside_a_node = cache.tree.match(key.slice(0, kTokens / 32));
      EXPECT_EQ(allocations.load(), before);
      EXPECT_EQ(whole.tokens, kTokens);
      EXPECT_EQ(inside_a_node.tokens, kTokens / 32);
      { const PrefixLock lock = cache.tree.lock(whole); }
      EXPECT_EQ(cache.tree.insert(key, cache.pages_of(key)).already_there_tokens, kTokens);
      const std::int64_t before_evict = allocations.load();
      EXPECT_GT(cache.tree.clear(), 0);
      EXPECT_EQ(allocations.load(), before_evict) << "eviction frees, it doesn't allocate";
    }
  }
}

double best_match_us(std::int32_t nodes) {
  TestCache cache(3 * kTokens / 64, 64);
  const Tokens tokens = run(0, kTokens);
  const TokenKey key(tokens, kDefaultNamespace);
  put_chain(cache, key, nodes);
  double best = 1e9;
  for (int round = 0; round < 200; ++round) {
    const auto start = std::chrono::steady_clock::now();
    const PrefixMatch match = cache.tree.match(key);
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(match.tokens, kTokens);
    best = std::min(best, spent.count());
  }
  return best;
}

// A walk that copied or rescanned the rest of the key at each node would cost about 8 times as much on 128 nodes, in every
// turn. It costs some 1.7 times as much; neighbours that share the processor's caches disturb a turn, not all of them.
TEST(RadixTreeCost, ALongPathCostsLessThanThreeTimesAShortOne) {
  constexpr int kTurns = 20;
  double long_us = 0, short_us = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    long_us = best_match_us(128);
    short_us = best_match_us(16);
    if (long_us < 3 * short_us + 1) return;
  }
  ADD_FAILURE() << long_us << " us against " << short_us << " us";
}

}  // namespace
}  // namespace levada::kv
