// What: StopSignals, SIGINT, SIGTERM and SIGHUP as something to poll instead of a handler.
// Owner: the command that supervises; made before any thread or child, which inherit the blocked signals.
// Thread: main.
// Invariant: none of them interrupts anything any more; each that arrives is told once by take().
#pragma once

#include <optional>

#include "base/fd.h"

namespace levada::up {

class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int descriptor() const { return descriptor_.get(); }  // readable when one is waiting
  // The next signal that arrived, if any; never waits.
  std::optional<int> take();

 private:
  Fd descriptor_;
};

}  // namespace levada::up
