// What: Pause, waiting that can be cut short: what a loop does between two tries.
// Owner: whoever composes the loop; tests and simulators inject one that moves their clock instead of sleeping.
// Thread: wait_us() from the loop's thread, stop() from any.
// Invariant: once stopped, every wait returns false at once, for ever.
// Not a synchronisation: nothing may depend on a wait having been long enough.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace levada {

class Pause {
 public:
  virtual ~Pause() = default;
  // False if stopped, before or during the wait.
  virtual bool wait_us(std::int64_t duration_us) = 0;
  virtual bool stopped() const = 0;
  // Wakes who waits.
  virtual void stop() = 0;
};

class StoppablePause final : public Pause {
 public:
  bool wait_us(std::int64_t duration_us) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::microseconds(duration_us), [&] { return stopped_; });
    return !stopped_;
  }
  bool stopped() const override {
    std::lock_guard lock(mutex_);
    return stopped_;
  }
  void stop() override {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace levada
