#include "base/clock.h"

#include <chrono>

namespace levada {

std::int64_t SystemClock::now_us() const {
  using namespace std::chrono;
  return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace levada
