// What: ThreadPool, the fixed set of threads that CPU kernels split their rows over.
// Owner: one per engine worker, injected into Context.
// Thread: parallel_for from one thread at a time.
// Invariant: thread 0 is the caller; workers sleep when idle (a short bounded spin first, no busy waiting). Where the
// maker of the pool may use exactly as many cores as it has threads, each has its own, the caller the first one if it asks;
// elsewhere nobody has one (`taskset` makes them so many). Splitting never changes a result: each output element is
// computed by one thread in a fixed order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace levada::kernels {

class ThreadPool {
 public:
  // threads >= 1, the caller included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  int threads() const;
  // Of thread 0, if it asks, and of workers 1, 2, …; empty if they are not pinned.
  const std::vector<int>& cores() const;
  // Pins the calling thread to the first core: one that calls parallel_for all its life. On another's core it would keep
  // that worker from running.
  void pin_caller();
  // Calls body(begin, end) over a partition of [0, count) whose borders are multiples of `grain`; returns when all are
  // done. Work of at most one grain runs on the caller without waking anybody. body must not throw and must not call
  // parallel_for of the same pool.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run(
        count, grain, [](void* b, std::int64_t begin, std::int64_t end) { (*static_cast<Plain*>(b))(begin, end); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Thunk = void (*)(void* body, std::int64_t begin, std::int64_t end);
  void run(std::int64_t count, std::int64_t grain, Thunk thunk, void* body);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::kernels
