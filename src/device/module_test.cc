// Modules of another build are refused before anything of theirs is called.
#include "device/module.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "base/interface_id.h"

namespace levada::device {
namespace {

TEST(Module, OneOfAnotherBuildIsRefusedAndBothAreNamed) {
  void* const module = dlopen(LEVADA_OTHER_BUILD, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(module, nullptr) << dlerror();
  const auto symbol = symbol_of(module, "libother.so", "levada_do_something");
  EXPECT_EQ(symbol.status().code(), StatusCode::kUnavailable);
  for (const std::string word : {"libother.so", "another build's", interface_id()})
    EXPECT_NE(symbol.status().message().find(word), std::string::npos) << symbol.status().message();
  dlclose(module);
}

TEST(Module, OneThatDoesNotSayIsRefused) {
  void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(libc, nullptr);
  EXPECT_FALSE(symbol_of(libc, "libc.so.6", "strlen").ok());
  dlclose(libc);
}

TEST(Module, TheIdIsSixteenHexDigits) {
  const std::string id = interface_id();
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

}  // namespace
}  // namespace levada::device
