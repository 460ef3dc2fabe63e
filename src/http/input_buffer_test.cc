#include "http/input_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace levada::http {
namespace {

constexpr std::size_t kCapacity = 64 << 10;

// As a read does: fills up to `count` bytes of the room and says how many.
std::size_t receive(InputBuffer& buffer, std::string_view bytes) {
  const boost::asio::mutable_buffer room = buffer.room(kCapacity);
  const std::size_t count = std::min(room.size(), bytes.size());
  std::memcpy(room.data(), bytes.data(), count);
  buffer.commit(count);
  return count;
}

TEST(InputBuffer, bytes_are_seen_in_the_order_they_came_whatever_was_consumed_between) {
  InputBuffer buffer;
  std::string sent, seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string bytes = "<" + std::to_string(i) + ">";
    sent += bytes;
    ASSERT_EQ(receive(buffer, bytes), bytes.size());
    const std::size_t consumed = std::min<std::size_t>(buffer.view().size(), static_cast<std::size_t>(i % 7));
    seen += buffer.view().substr(0, consumed);
    buffer.consume(consumed);
  }
  EXPECT_EQ(seen + std::string(buffer.view()), sent);
}

TEST(InputBuffer, bytes_may_be_consumed_while_a_read_is_under_way) {
  InputBuffer buffer;
  receive(buffer, "abc");
  const boost::asio::mutable_buffer room = buffer.room(kCapacity);
  buffer.consume(3);
  EXPECT_TRUE(buffer.view().empty());
  std::memcpy(room.data(), "de", 2);
  buffer.commit(2);
  EXPECT_EQ(buffer.view(), "de");
}

TEST(InputBuffer, memory_grows_with_what_is_received_and_is_bounded) {
  InputBuffer buffer;
  const std::string much(kCapacity, 'x');
  EXPECT_LE(buffer.room(kCapacity).size(), 4096u);
  buffer.commit(0);
  while (buffer.view().size() < kCapacity) ASSERT_GT(receive(buffer, much), 0u);
  EXPECT_EQ(buffer.view().size(), kCapacity);
}

TEST(InputBuffer, memory_is_given_back_once_nothing_is_held) {
  InputBuffer buffer;
  const std::string much(kCapacity, 'x');
  while (buffer.view().size() < 10'000) receive(buffer, much);
  buffer.consume(1);
  const std::size_t held = buffer.view().size();
  buffer.shrink();
  EXPECT_EQ(buffer.view().size(), held) << "what is held stays";
  buffer.consume(held);
  buffer.shrink();
  EXPECT_LE(buffer.room(kCapacity).size(), 4096u);
}

}  // namespace
}  // namespace levada::http
