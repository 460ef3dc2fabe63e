#include "bench/radix_bench.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/check.h"
#include "kv/radix_tree.h"

namespace levada::bench {

namespace {

using Tokens = std::vector<core::Token>;

constexpr std::int32_t kLongTokens = 65536;
constexpr std::int32_t kSharedTokens = 1024, kLeafTokens = 64, kLeaves = 10000;

Tokens random_tokens(std::int32_t count, std::mt19937_64& random) {
  constexpr std::uint64_t kVocabulary = 151936;
  Tokens tokens(static_cast<std::size_t>(count));
  for (core::Token& token : tokens) token = static_cast<core::Token>(random() % kVocabulary);
  return tokens;
}

// A pool and a tree, used as the scheduler uses them.
struct Cache {
  Cache(std::int32_t tokens, std::int32_t page_size) : pool(tokens / page_size), tree(pool, page_size) {}

  void put(const kv::TokenKey& key) {
    const std::int32_t page_size = tree.page_size_tokens();
    std::vector<core::PageId> pages;
    const kv::PrefixMatch match = tree.match(key);
    tree.append_pages(match, pages);
    auto lease = pool.try_allocate((key.size() - match.tokens) / page_size);
    LEVADA_CHECK(lease.has_value(), "the bench's pool is too small");
    pages.insert(pages.end(), lease->pages().begin(), lease->pages().end());
    const auto inserted = tree.insert(key, pages);
    lease->adopt(0, lease->size());
  }

  kv::PagePool pool;
  kv::RadixTree tree;
};

// The cases of one page size.
class RadixBench {
 public:
  RadixBench(std::int32_t page_size, double scale, std::vector<Case>& cases)
      : page_size_(page_size), scale_(scale), cases_(cases) {}

  void run() {
    path(16);
    path(128);
    bigram_path(128);
    fresh_insert();
    many_leaves();
  }

 private:
  template <class Prepare, class Body>
  void sample(const std::string& name, std::int32_t samples, Prepare prepare, Body body) {
    const auto scaled = std::max(1, static_cast<std::int32_t>(std::lround(scale_ * samples)));
    cases_.push_back(sample_us(name + "_p" + std::to_string(page_size_), {scaled, scaled / 10}, prepare, body));
  }

  static void put_path(Cache& cache, const kv::TokenKey& key, std::int32_t nodes) {
    for (std::int32_t node = 1; node <= nodes; ++node) cache.put(key.slice(0, key.size() / nodes * node));
    LEVADA_CHECK(cache.tree.node_count() == nodes, "the path has the nodes asked for");
  }

  void path(std::int32_t nodes) {
    const std::string suffix = "_64k_" + std::to_string(nodes) + "n";
    Cache cache(2 * kLongTokens, page_size_);
    const Tokens tokens = random_tokens(kLongTokens, random_);
    const kv::TokenKey key(tokens, kv::kDefaultNamespace);
    put_path(cache, key, nodes);
    const auto nothing = [] {};
    sample("match" + suffix, 2000, nothing, [&] { keep(cache.tree.match(key)); });
    std::vector<core::PageId> pages;
    sample(
        "match_gather" + suffix, 2000, [&] { pages.clear(); },
        [&] { cache.tree.append_pages(cache.tree.match(key), pages); });
    sample("match_lock" + suffix, 2000, nothing, [&] { keep(cache.tree.lock(cache.tree.match(key))); });
    sample("reinsert" + suffix, 2000, nothing, [&] { keep(cache.tree.insert(key, pages)); });
  }

  void bigram_path(std::int32_t nodes) {
    Cache cache(2 * kLongTokens, page_size_);
    const Tokens tokens = random_tokens(kLongTokens + 1, random_);
    const kv::TokenKey key(tokens, kv::kDefaultNamespace, true);
    put_path(cache, key, nodes);
    sample(
        "bigram_match_64k_" + std::to_string(nodes) + "n", 2000, [] {}, [&] { keep(cache.tree.match(key)); });
  }

  void fresh_insert() {
    Cache cache(kLongTokens, page_size_);
    const Tokens tokens = random_tokens(kLongTokens, random_);
    const kv::TokenKey key(tokens, kv::kDefaultNamespace);
    std::optional<kv::PageLease> lease;
    std::optional<kv::RadixTree::Inserted> inserted;
    const auto empty_tree = [&] {
      if (inserted) lease->adopt(0, lease->size());
      inserted.reset();
      cache.tree.clear();
      lease = cache.pool.try_allocate(kLongTokens / page_size_);
    };
    sample("insert_64k_fresh", 500, empty_tree, [&] { inserted = cache.tree.insert(key, lease->pages()); });
    empty_tree();
  }

  void many_leaves() {
    Cache cache(kSharedTokens + kLeafTokens * (kLeaves + 1), page_size_);
    const Tokens shared = random_tokens(kSharedTokens, random_);
    std::vector<Tokens> keys(kLeaves, shared);
    for (Tokens& key : keys) {
      const Tokens leaf = random_tokens(kLeafTokens, random_);
      key.insert(key.end(), leaf.begin(), leaf.end());
    }
    const auto key_at = [&](std::size_t at) { return kv::TokenKey(keys[at], kv::kDefaultNamespace); };
    const auto put_all = [&] {
      for (std::size_t at = 0; at < keys.size(); ++at) cache.put(key_at(at));
    };
    put_all();
    // The prompt has just been tokenized, so it is in the cache; the leaf it hits is anywhere.
    Tokens prompt;
    sample(
        "match_1k_10kleaves", 20000, [&] { prompt = keys[random_() % keys.size()]; },
        [&] { keep(cache.tree.match(kv::TokenKey(prompt, kv::kDefaultNamespace))); });
    // From here on leaves go in the order of put_all(); the one evicted comes back as the most recent.
    cache.tree.clear();
    put_all();
    std::size_t turn = 0;
    const auto restore = [&] {
      if (turn > 0) cache.put(key_at((turn - 1) % keys.size()));
      ++turn;
    };
    sample("evict_1_of_10k", 20000, restore, [&] { keep(cache.tree.evict(1)); });
    const auto rebuild = [&] {
      cache.tree.clear();
      put_all();
    };
    sample("evict_10k", 30, rebuild, [&] { keep(cache.tree.evict(kLeaves * (kLeafTokens / page_size_))); });
  }

  std::int32_t page_size_;
  double scale_;
  std::vector<Case>& cases_;
  std::mt19937_64 random_{20240229};
};

}  // namespace

std::vector<Case> run_radix_bench(double scale) {
  std::vector<Case> cases;
  for (const std::int32_t page_size : {1, 64}) RadixBench(page_size, scale, cases).run();
  return cases;
}

}  // namespace levada::bench
