#include "kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace levada::kernels {
namespace {

TEST(ThreadPool, PartitionsTheRangeAtMultiplesOfTheGrain) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t count : {0, 1, 7, 16, 17, 1000}) {
      for (const std::int64_t grain : {1, 4, 16, 2000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          EXPECT_TRUE(end % grain == 0 || end == count);
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        for (const auto& visit : visits) EXPECT_EQ(visit.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, ReturnsWhenAllAreDoneAndPublishesTheirWrites) {
  ThreadPool pool(3);
  std::vector<std::int64_t> data(300);
  for (std::int64_t round = 1; round <= 2000; ++round) {
    pool.parallel_for(300, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) data[static_cast<std::size_t>(i)] += i;  // plain: a race would show
    });
    ASSERT_EQ(data[299], 299 * round);
    ASSERT_EQ(data[17], 17 * round);
  }
}

TEST(ThreadPool, WorkOfOneGrainRunsOnTheCaller) {
  ThreadPool pool(4);
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(10, 10, [&](std::int64_t, std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

// The cores that the calling thread may use.
std::vector<int> cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// Calls body() on a thread that may use the first `count` cores alone.
template <class Body>
void on_cores(std::size_t count, Body body) {
  std::thread([&] {
    const std::vector<int> allowed = cores_of_this_thread();
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t i = 0; i < count; ++i) CPU_SET(allowed.at(i), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    body();
  }).join();
}

TEST(ThreadPool, AsManyThreadsAsCoresHaveOneEachTheCallerIfItAsks) {
  const std::vector<int> allowed = cores_of_this_thread();
  if (allowed.size() < 2) GTEST_SKIP() << "one core";
  on_cores(2, [&] {
    ThreadPool pool(2);
    EXPECT_EQ(pool.cores(), (std::vector<int>{allowed[0], allowed[1]}));
    std::vector<int> on_worker;
    std::atomic<int> inside{0};
    const auto caller = std::this_thread::get_id();
    pool.parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();  // so that both threads take one
      if (std::this_thread::get_id() != caller) on_worker = cores_of_this_thread();
    });
    EXPECT_EQ(on_worker, std::vector<int>{allowed[1]});
    EXPECT_EQ(cores_of_this_thread().size(), 2u);
    pool.pin_caller();
    EXPECT_EQ(cores_of_this_thread(), std::vector<int>{allowed[0]});
  });
}

TEST(ThreadPool, FewerOrMoreThreadsThanCoresAreNotPinned) {
  const std::size_t cores = cores_of_this_thread().size();
  for (const std::size_t threads : {cores - 1, cores + 1}) {
    if (threads == 0) continue;
    ThreadPool pool(static_cast<int>(threads));
    EXPECT_TRUE(pool.cores().empty());
    pool.pin_caller();
    EXPECT_EQ(cores_of_this_thread().size(), cores);
  }
}

TEST(ThreadPool, WorkersShareTheWork) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::vector<std::thread::id> seen;
  // The first chunk waits until another thread has taken one.
  std::atomic<int> inside{0};
  pool.parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    seen.push_back(std::this_thread::get_id());
  });
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_NE(seen[0], seen[1]);
}

TEST(ThreadPool, SleepsWhenIdle) {
  ThreadPool pool(4);
  pool.parallel_for(100, 1, [](std::int64_t, std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the bounded spin is over
  const auto cpu_ns = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
  };
  const auto before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_ns() - before, 2'000'000) << "1 % of 200 ms";
}

}  // namespace
}  // namespace levada::kernels
