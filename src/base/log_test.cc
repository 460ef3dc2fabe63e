#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace levada {
namespace {

using testing::HasSubstr;
using testing::Not;

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { set_log_level(LogLevel::kInfo); }

  template <class Action>
  std::string logged(Action action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, joins_its_parts_into_one_line_with_the_level) {
  const std::string name = "smollm2";
  const std::string line =
      logged([&] { LEVADA_LOG_WARNING("loaded ", name, ": ", 272, " tensors, ", 0.5, ' ', true); });
  EXPECT_THAT(line, HasSubstr("warning"));
  EXPECT_THAT(line, HasSubstr("loaded smollm2: 272 tensors, 0.5 true\n"));
}

TEST_F(LogTest, a_message_below_the_level_evaluates_none_of_its_arguments) {
  int evaluated = 0;
  const auto costly = [&] { return ++evaluated; };
  EXPECT_EQ(logged([&] { LEVADA_LOG_DEBUG("hidden ", costly()); }), "");
  EXPECT_EQ(evaluated, 0);
  set_log_level(LogLevel::kDebug);
  EXPECT_THAT(logged([&] { LEVADA_LOG_DEBUG("shown ", costly()); }), HasSubstr("shown 1"));
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(logged([&] { LEVADA_LOG_ERROR("hidden"); }), "");
}

TEST_F(LogTest, text_from_outside_cannot_forge_a_line_or_drive_a_terminal) {
  const std::string line = logged([] { LEVADA_LOG_INFO("path ", "/x\n2026 error\x1b[2J"); });
  EXPECT_THAT(line, HasSubstr("path /x\\n2026 error\\x1b[2J\n"));
  EXPECT_THAT(line, Not(HasSubstr("\x1b[2J")));
}

TEST(LogLevel, is_parsed_by_name) {
  EXPECT_EQ(*parse_log_level("warning"), LogLevel::kWarning);
  EXPECT_THAT(parse_log_level("loud").status().message(), HasSubstr("debug, info, warning, error, off, got \"loud\""));
}

}  // namespace
}  // namespace levada
