#include "base/clock.h"

#include <gtest/gtest.h>

namespace levada {
namespace {

TEST(SystemClock, never_goes_backwards_and_counts_microseconds) {
  const SystemClock clock;
  const std::int64_t start = clock.now_us();
  std::int64_t last = start;
  while (last < start + 2000) {
    const std::int64_t now = clock.now_us();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ManualClock, stands_still_until_told) {
  ManualClock clock;
  const std::int64_t before = clock.now_us();
  EXPECT_EQ(clock.now_us(), before);
  clock.advance_us(250);
  EXPECT_EQ(clock.now_us(), before + 250);
}

}  // namespace
}  // namespace levada
