// What: CpuClock, the processor time of one thread or of the process, read from any thread.
// Owner: benches.
// Thread: take of_this_thread() on the thread that is measured; now_us() from any, while that thread lives.
// Invariant: only grows. No format of its own.
#pragma once

#include <pthread.h>

#include <ctime>

namespace levada::bench {

class CpuClock {
 public:
  static CpuClock of_this_thread() {
    CpuClock clock;
    pthread_getcpuclockid(pthread_self(), &clock.id_);
    return clock;
  }
  static CpuClock of_the_process() { return {}; }

  double now_us() const {
    timespec now{};
    clock_gettime(id_, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
  }

 private:
  clockid_t id_ = CLOCK_PROCESS_CPUTIME_ID;
};

}  // namespace levada::bench
