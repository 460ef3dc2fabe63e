#include "http/output_queue.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/fd.h"

namespace levada::http {
namespace {

class OutputQueueTest : public testing::Test {
 protected:
  OutputQueueTest() {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    near.reset(pair[0]);
    far.reset(pair[1]);
  }
  std::string drain() {
    std::string all;
    char buffer[65536];
    for (long got; (got = ::recv(far.get(), buffer, sizeof buffer, MSG_DONTWAIT)) > 0;)
      all.append(buffer, static_cast<std::size_t>(got));
    return all;
  }

  Fd near, far;
  OutputQueue queue;
};

TEST_F(OutputQueueTest, small_and_large_pieces_leave_in_order_in_one_call) {
  std::string expected;
  for (int i = 0; i < 20; ++i) {
    const std::string piece(i % 5 == 0 ? 5000 : 10, static_cast<char>('a' + i));
    queue.add(piece);
    expected += piece;
  }
  EXPECT_EQ(queue.size(), expected.size());
  EXPECT_EQ(queue.send(near.get()), static_cast<long>(expected.size()));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(drain(), expected);
}

TEST_F(OutputQueueTest, a_full_socket_takes_a_part_and_the_rest_follows) {
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    queue.add(std::string(10'000, static_cast<char>('a' + i % 26)));
    expected += std::string(10'000, static_cast<char>('a' + i % 26));
  }
  std::string got;
  bool was_full = false;
  while (!queue.empty()) {
    const std::size_t before = queue.size();
    const long sent = queue.send(near.get());
    if (sent < 0) {
      ASSERT_EQ(errno, EAGAIN);
      was_full = true;
      got += drain();
    } else {
      EXPECT_EQ(queue.size(), before - static_cast<std::size_t>(sent));
    }
  }
  EXPECT_TRUE(was_full);
  EXPECT_TRUE(got + drain() == expected);
}

TEST_F(OutputQueueTest, take_moves_everything_behind_what_is_there) {
  OutputQueue other;
  queue.add(std::string_view("one "));
  other.add(std::string_view("two "));
  other.add(std::string(5000, 'x'));
  queue.take(other);
  EXPECT_TRUE(other.empty());
  other.add(std::string_view("three"));
  queue.take(other);
  queue.send(near.get());
  EXPECT_EQ(drain(), "one two " + std::string(5000, 'x') + "three");
}

}  // namespace
}  // namespace levada::http
