#include "base/secret.h"

#include <gtest/gtest.h>

#include <string>

namespace levada {
namespace {

TEST(Secret, OnlyTheWholeSecretIsEqual) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abcd", "abd", "Abc"})
    EXPECT_FALSE(equal_in_constant_time(other, "abc")) << other;
  EXPECT_FALSE(equal_in_constant_time("abc", ""));
  EXPECT_FALSE(equal_in_constant_time(std::string("abc\0", 4), "abc"));
}

}  // namespace
}  // namespace levada
