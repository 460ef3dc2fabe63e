// What: SignalWatch, SIGINT and SIGTERM as a call to stop.
// Owner: a command; made first, so that every later thread has the signals blocked.
// Thread: a thread of its own takes the signals.
// Invariant: while a stop action is set the first signal calls it. Any other signal, while a model loads or when stopping
// takes too long, ends the process with 128 + the signal.
#pragma once

#include <csignal>
#include <functional>
#include <mutex>

#include "base/thread.h"

namespace levada::cli {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // `stop` must not block; on_stop({}) before what it uses goes.
  void on_stop(std::function<void()> stop);

 private:
  static constexpr int kWake = SIGUSR1;

  void watch();

  sigset_t set_{};
  std::mutex mutex_;
  std::function<void()> stop_;
  bool closing_ = false;
  Thread watcher_;  // last: joined while the fields above still live
};

}  // namespace levada::cli
