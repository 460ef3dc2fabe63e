#include "base/pause.h"

#include <gtest/gtest.h>

#include "base/thread.h"

namespace levada {
namespace {

TEST(PauseTest, AnUnstoppedWaitEndsByItself) {
  StoppablePause pause;
  EXPECT_TRUE(pause.wait_us(1000));
  EXPECT_FALSE(pause.stopped());
}

TEST(PauseTest, StopEndsAWaitThatGoesOnAndEveryLaterOne) {
  StoppablePause pause;
  bool waited_out = true;
  {
    Thread waiter("waiter", [&] { waited_out = pause.wait_us(600'000'000); });
    pause.stop();
  }
  EXPECT_FALSE(waited_out);
  EXPECT_TRUE(pause.stopped());
  EXPECT_FALSE(pause.wait_us(600'000'000));
}

}  // namespace
}  // namespace levada
