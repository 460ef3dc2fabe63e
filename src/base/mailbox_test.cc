#include "base/mailbox.h"

#include <gtest/gtest.h>

#include <array>

#include "base/thread.h"

namespace levada {
namespace {

using std::chrono::microseconds;

TEST(Mailbox, keeps_the_order_of_each_sender) {
  constexpr int kSenders = 4, kEach = 2000;
  Mailbox<std::pair<int, int>> mailbox;
  std::array<Thread, kSenders> senders;
  for (int s = 0; s < kSenders; ++s)
    senders[s] = Thread("sender", [&mailbox, s] {
      for (int i = 0; i < kEach; ++i) EXPECT_TRUE(mailbox.push({s, i}));
    });

  std::array<int, kSenders> next{};
  std::vector<std::pair<int, int>> batch;
  for (int received = 0; received < kSenders * kEach; batch.clear()) {
    ASSERT_TRUE(mailbox.take(batch));
    for (const auto& [sender, number] : batch) EXPECT_EQ(number, next[sender]++);
    received += static_cast<int>(batch.size());
  }
}

TEST(Mailbox, what_was_accepted_before_close_is_still_delivered) {
  Mailbox<int> mailbox;
  EXPECT_TRUE(mailbox.push(1));
  mailbox.close();
  EXPECT_FALSE(mailbox.push(2)) << "after close() nothing is accepted";
  std::vector<int> out;
  EXPECT_TRUE(mailbox.take(out));
  EXPECT_EQ(out, std::vector<int>{1});
  out.clear();
  EXPECT_FALSE(mailbox.take(out)) << "closed and empty";
}

TEST(Mailbox, take_answers_true_with_nothing_when_the_timeout_passes) {
  Mailbox<int> mailbox;
  std::vector<int> out;
  EXPECT_TRUE(mailbox.take(out, microseconds(100)));
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(mailbox.try_take(out), 0u);
}

TEST(Mailbox, close_wakes_the_waiting_receiver) {
  Mailbox<int> mailbox;
  bool open = true;
  Thread receiver("receiver", [&] {
    std::vector<int> out;
    open = mailbox.take(out);
  });
  mailbox.close();
  receiver.join();
  EXPECT_FALSE(open);
}

}  // namespace
}  // namespace levada
