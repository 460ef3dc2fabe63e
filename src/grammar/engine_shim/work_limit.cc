#include "work_limit.h"

#include <pthread.h>

#include <ctime>
#include <utility>

namespace levada::grammar {

namespace {

std::int64_t thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

// What the engine's leaves, and whoever handles a hit, need below the last look.
constexpr std::size_t kStackReserveBytes = 512 << 10;

std::uintptr_t lowest_stack_address() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  std::size_t size = 0;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<std::uintptr_t>(lowest);
}

}  // namespace

thread_local WorkLimit* WorkLimit::active_ = nullptr;

WorkLimit::WorkLimit(const Limits& limits) : limits_(limits), start_us_(thread_cpu_us()) {
  static thread_local const std::uintptr_t lowest = lowest_stack_address();
  lowest_frame_ = lowest + kStackReserveBytes;
  active_ = this;
}

WorkLimit::~WorkLimit() { active_ = nullptr; }

void WorkLimit::hit(std::string what) {
  hit_ = std::move(what);
  throw WorkLimitHit{hit_};
}

void WorkLimit::look_at_clock() {
  if (!hit_.empty()) throw WorkLimitHit{hit_};
  steps_ = 0;
  if (thread_cpu_us() - start_us_ > limits_.cpu_us) {
    hit("takes more than " + std::to_string(limits_.cpu_us / 1000) + " ms of processor time");
  }
}

void WorkLimit::look_at_stack() const {
  const char here = 0;
  if (reinterpret_cast<std::uintptr_t>(&here) < lowest_frame_) throw WorkLimitHit{"is nested too deeply"};
}

void WorkLimit::charge_bytes(std::size_t count) {
  if (active_ == nullptr) return;
  active_->limits_.bytes -= static_cast<std::int64_t>(count);
  if (active_->limits_.bytes < 0) active_->hit("has too many states: their token masks take too much memory");
}

void WorkLimit::enter() {
  if (active_ == nullptr) return;
  active_->look_at_stack();
  step();
}

}  // namespace levada::grammar
