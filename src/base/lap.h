// What: Lap, the seconds between two askings, as text for the log of a start.
// Owner: value type.
// Thread: one.
// Invariant: the laps add up to the time since construction.
// No format of its own.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include "base/clock.h"

namespace levada {

class Lap {
 public:
  // "1.23 s" since it was asked last.
  std::string operator()() {
    const std::int64_t now = clock_.now_us();
    char text[32];
    std::snprintf(text, sizeof text, "%.2f s", static_cast<double>(now - std::exchange(last_us_, now)) / 1e6);
    return text;
  }

 private:
  SystemClock clock_;
  std::int64_t last_us_ = clock_.now_us();
};

}  // namespace levada
