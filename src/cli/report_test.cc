#include <gtest/gtest.h>

#include "cli/command.h"

namespace levada::cli {
namespace {

TEST(Report, AFailureIsOneLineWhateverBytesItQuotes) {
  EXPECT_EQ(failure_line(invalid_argument("must be at most 8", "port")), "levada: port: must be at most 8\n");
  EXPECT_EQ(failure_line(data_loss(std::string("a\0b\nc\x7F is odd", 13))), "levada: a\\x00b\\x0ac\\x7f is odd\n");
  EXPECT_EQ(failure_line(data_loss("naïve")), "levada: naïve\n");
}

TEST(Report, WhatTheUserCanMendExitsWithTwo) {
  EXPECT_EQ(report(invalid_argument("x")), kExitUsage);
  EXPECT_EQ(report(data_loss("x")), kExitUsage);
  EXPECT_EQ(report(internal_error("x")), kExitFailure);
}

}  // namespace
}  // namespace levada::cli
