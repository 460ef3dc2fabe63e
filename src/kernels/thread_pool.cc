#include "kernels/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace levada::kernels {
namespace {

// Long enough to bridge the gap between two kernels of one step, short enough that an idle server burns nothing.
constexpr auto kSpin = std::chrono::microseconds(50);
// A chunk is this part of what is left for each thread: large ones first, the last ones so small that threads which began
// at different times, or share a core with others, end together.
constexpr std::int64_t kPartsPerThread = 2;

// The gate is one word: [31..17] epoch, [16] open, [15..0] workers inside.
constexpr std::uint32_t kInsideMask = 0xffff;
constexpr std::uint32_t kOpen = 1u << 16;
constexpr std::uint32_t kEpochStep = 1u << 17;
constexpr std::uint32_t epoch_of(std::uint32_t gate) { return gate / kEpochStep; }

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// A wish: a thread that may not choose its core works as well on another.
void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins for at most kSpin until done() holds; returns whether it does.
template <class Done>
bool spin_until(Done done) {
  if (done()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

//   closed, empty ──run: publish job──> open ──worker enter/leave: inside ± 1──> open ──run: work exhausted──> closed
//   run() returns only when the gate is closed and nobody is inside; a worker that comes late finds it closed and
//   touches nothing, so the job's fields may be plain.
struct ThreadPool::Impl {
  std::atomic<std::uint32_t> gate{0};
  std::atomic<bool> stopping{false};
  std::atomic<std::int64_t> next{0};
  std::int64_t count = 0;
  std::int64_t grain = 1;
  Thunk thunk = nullptr;
  void* body = nullptr;
  std::vector<int> cores;       // of all threads, if they are pinned
  std::vector<Thread> workers;  // last: joined while the fields above still live

  // Also when a pool fails to start its last thread: the ones before it go.
  ~Impl() {
    stopping.store(true);
    gate.fetch_add(kEpochStep);
    gate.notify_all();
  }

  void take_chunks() {
    const std::int64_t parts = kPartsPerThread * (static_cast<std::int64_t>(workers.size()) + 1);
    std::int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const std::int64_t wanted = (count - begin) / parts / grain * grain;
      const std::int64_t end = std::min(begin + std::max(wanted, grain), count);
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      thunk(body, begin, end);
      begin = next.load(std::memory_order_relaxed);
    }
  }

  void leave() {
    const std::uint32_t now = gate.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if ((now & (kOpen | kInsideMask)) == 0) gate.notify_all();
  }

  void work() {
    std::uint32_t seen = 0;
    for (;;) {
      const auto has_news = [&] {
        return epoch_of(gate.load(std::memory_order_acquire)) != seen || stopping.load(std::memory_order_relaxed);
      };
      while (!spin_until(has_news)) {
        const std::uint32_t now = gate.load(std::memory_order_acquire);
        if (epoch_of(now) == seen) gate.wait(now, std::memory_order_acquire);
      }
      if (stopping.load(std::memory_order_relaxed)) return;
      std::uint32_t now = gate.load(std::memory_order_acquire);
      seen = epoch_of(now);
      bool entered = false;
      while (!entered && (now & kOpen) != 0 && epoch_of(now) == seen) {
        entered = gate.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel);
      }
      if (!entered) continue;
      take_chunks();
      leave();
    }
  }

  void close_and_drain() {
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto empty = [&] { return (gate.load(std::memory_order_acquire) & kInsideMask) == 0; };
    while (!spin_until(empty)) {
      const std::uint32_t now = gate.load(std::memory_order_acquire);
      if ((now & kInsideMask) != 0) gate.wait(now, std::memory_order_acquire);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  LEVADA_CHECK(threads >= 1 && threads <= 1024, "a pool has 1 to 1024 threads");
  const std::vector<int> allowed = allowed_cores();
  const auto count = static_cast<std::size_t>(threads);
  // Were there more cores, two servers of a machine would choose the same ones.
  if (threads > 1 && count == allowed.size()) impl_->cores = allowed;
  for (std::size_t i = 1; i < count; ++i) {
    impl_->workers.emplace_back("levada-kernels", [impl = impl_.get(), i] {
      if (!impl->cores.empty()) pin_to(impl->cores[i]);
      impl->work();
    });
  }
}

ThreadPool::~ThreadPool() = default;

const std::vector<int>& ThreadPool::cores() const { return impl_->cores; }

void ThreadPool::pin_caller() {
  if (!impl_->cores.empty()) pin_to(impl_->cores.front());
}

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::run(std::int64_t count, std::int64_t grain, Thunk thunk, void* body) {
  LEVADA_CHECK(grain >= 1, "grain");
  if (count <= 0) return;
  if (impl_->workers.empty() || count <= grain) {
    thunk(body, 0, count);
    return;
  }
  impl_->count = count;
  impl_->grain = grain;
  impl_->thunk = thunk;
  impl_->body = body;
  impl_->next.store(0, std::memory_order_relaxed);
  // Nobody is inside: one add moves to the next epoch and opens the gate.
  impl_->gate.fetch_add(kEpochStep + kOpen, std::memory_order_acq_rel);
  impl_->gate.notify_all();
  impl_->take_chunks();
  impl_->close_and_drain();
}

}  // namespace levada::kernels
