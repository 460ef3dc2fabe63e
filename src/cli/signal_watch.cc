#include "cli/signal_watch.h"

#include <unistd.h>

#include <utility>

#include "base/log.h"

namespace levada::cli {

SignalWatch::SignalWatch() {
  sigemptyset(&set_);
  for (const int signal : {SIGINT, SIGTERM, kWake}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  watcher_ = Thread("levada-signals", [this] { watch(); });
}

SignalWatch::~SignalWatch() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  kill(getpid(), kWake);
}

void SignalWatch::on_stop(std::function<void()> stop) {
  std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
}

void SignalWatch::watch() {
  for (;;) {
    int signal = 0;
    sigwait(&set_, &signal);
    std::lock_guard lock(mutex_);
    if (closing_) return;
    if (signal == kWake) continue;
    if (!stop_) _exit(128 + signal);
    LEVADA_LOG_INFO("signal ", signal, ": stopping; once more ends the process at once");
    std::exchange(stop_, nullptr)();
  }
}

}  // namespace levada::cli
