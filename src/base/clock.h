// What: the injected clock. Nothing above base reads the time in another way, so a simulator can replay it.
// Owner: whoever composes the process owns one SystemClock; tests own a ManualClock.
// Thread: any.
// Invariant: now_us() never goes backwards.
// Units: microseconds since an arbitrary start.
#pragma once

#include <atomic>
#include <cstdint>

namespace levada {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t now_us() const = 0;
};

class SystemClock final : public Clock {
 public:
  std::int64_t now_us() const override;
};

// Stands still until told; for tests and the simulator.
class ManualClock final : public Clock {
 public:
  std::int64_t now_us() const override { return now_us_.load(); }
  void advance_us(std::int64_t delta_us) { now_us_.fetch_add(delta_us); }

 private:
  std::atomic<std::int64_t> now_us_{0};
};

}  // namespace levada
