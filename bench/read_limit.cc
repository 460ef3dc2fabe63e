#include "bench/read_limit.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/check.h"
#include "bench/bench.h"
#include "kernels/thread_pool.h"

namespace levada::bench {
namespace {

constexpr std::int64_t kWords = std::int64_t{64} << 20;

// Eight sums, so that no addition waits for the one before.
std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t sums[8] = {};
  for (std::int64_t i = 0; i + 8 <= count; i += 8) {
    __builtin_prefetch(words + i + 256);
    for (std::int64_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

std::vector<double> measure_read_limit(std::int32_t passes) {
  kernels::ThreadPool pool(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1024u)));
  // Large pages, as quantised weights have them.
  constexpr std::size_t kHugePage = std::size_t{2} << 20, kBytes = kWords * sizeof(std::uint64_t);
  struct Free {
    void operator()(std::uint64_t* p) const { std::free(p); }
  };
  const std::unique_ptr<std::uint64_t, Free> words(static_cast<std::uint64_t*>(std::aligned_alloc(kHugePage, kBytes)));
  LEVADA_CHECK(words != nullptr, "memory to read");
  (void)madvise(words.get(), kBytes, MADV_HUGEPAGE);  // a wish
  std::fill_n(words.get(), kWords, 1);
  std::vector<double> rates;
  for (std::int32_t pass = 0; pass < passes; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(kWords, 8 << 10,
                      [&](std::int64_t begin, std::int64_t end) { keep(sum_of(words.get() + begin, end - begin)); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(kWords) * sizeof(std::uint64_t) / seconds.count());
  }
  return rates;
}

}  // namespace levada::bench
