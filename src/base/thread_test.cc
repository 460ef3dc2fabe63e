#include "base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

namespace levada {
namespace {

TEST(Thread, is_joined_when_its_owner_goes) {
  bool done = false;
  {
    Thread worker("worker", [&] { done = true; });
  }
  EXPECT_TRUE(done);
}

TEST(Thread, carries_the_first_15_bytes_of_its_name) {
  char name[16] = {};
  Thread("a-rather-long-thread-name", [&] { pthread_getname_np(pthread_self(), name, sizeof name); }).join();
  EXPECT_STREQ(name, "a-rather-long-t");
}

TEST(Thread, assignment_joins_the_thread_held_before) {
  bool first_done = false;
  Thread worker("first", [&] { first_done = true; });
  worker = Thread();
  EXPECT_TRUE(first_done);
  EXPECT_FALSE(worker.joinable());
  worker.join();  // does nothing on an empty Thread
}

}  // namespace
}  // namespace levada
