// What: WorkLimit, how much processor time, memory and stack the grammar engine may take on this thread;
// cmake/XGrammar.cmake puts calls to it into the engine.
// Owner: Compiler::compile() and each call of a Matcher, for its own duration.
// Thread: the one that made it (thread-local).
// Invariant: once a limit is hit, every later call throws too. Outside a limit all calls do nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace levada::grammar {

// Not a std::exception: the engine catches some of those.
struct WorkLimitHit {
  std::string what;  // "takes more than 5 s to compile"
};

class WorkLimit {
 public:
  struct Limits {
    std::int64_t cpu_us;  // of this thread
    std::int64_t bytes;   // of masks
  };
  explicit WorkLimit(const Limits& limits);
  ~WorkLimit();
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;

  // Each throws WorkLimitHit when its limit is passed. The clock is looked at once in kStepsPerLook steps.
  static void step() {
    if (active_ != nullptr && ++active_->steps_ >= kStepsPerLook) active_->look_at_clock();
  }
  static void charge_bytes(std::size_t count);
  // One recursion of the engine: a step and a look at the stack.
  static void enter();

 private:
  static constexpr std::int32_t kStepsPerLook = 256;
  void look_at_clock();
  void look_at_stack() const;
  [[noreturn]] void hit(std::string what);

  static thread_local WorkLimit* active_;
  Limits limits_;
  std::int64_t start_us_;
  std::int32_t steps_ = 0;
  std::uintptr_t lowest_frame_;  // of the stack that may be used
  std::string hit_;
};

}  // namespace levada::grammar
