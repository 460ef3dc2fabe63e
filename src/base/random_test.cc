#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace levada {
namespace {

TEST(Random, NoNumberComesTwice) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(random_word()).second);
}

TEST(Random, TextIsSixteenDigitsAWord) {
  const std::string text = random_hex(2);
  EXPECT_EQ(text.size(), 32u);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(text.substr(0, 16), text.substr(16));
}

}  // namespace
}  // namespace levada
