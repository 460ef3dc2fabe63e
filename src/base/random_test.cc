#include "base/random.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace levada {
namespace {

TEST(Random, NoNumberComesTwice) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(random_word()).second);
}

TEST(Random, NoNumberOfOneThreadIsAnothers) {
  std::set<std::uint64_t> seen;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::uint64_t> words(40);
    std::thread([&] { std::generate(words.begin(), words.end(), random_word); }).join();
    for (const std::uint64_t word : words) EXPECT_TRUE(seen.insert(word).second);
  }
}

TEST(Random, AForkedProcessHasNumbersOfItsOwn) {
  random_word();  // some are at hand
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t word = random_word();
    _exit(::write(ends[1], &word, sizeof word) == sizeof word ? 0 : 1);
  }
  std::uint64_t theirs = 0;
  EXPECT_EQ(::read(ends[0], &theirs, sizeof theirs), static_cast<long>(sizeof theirs));
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_NE(theirs, random_word());
}

TEST(Random, TextIsSixteenDigitsAWord) {
  const std::string text = random_hex(2);
  EXPECT_EQ(text.size(), 32u);
  EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(text.substr(0, 16), text.substr(16));
}

}  // namespace
}  // namespace levada
