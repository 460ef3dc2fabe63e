#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace levada {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return invalid_argument("must be even, got " + std::to_string(number), "number");
  return number / 2;
}

Result<int> quarter(int number) {
  LEVADA_ASSIGN_OR_RETURN(const int once, half(number));
  LEVADA_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status only_even(int number) {
  LEVADA_RETURN_IF_ERROR(half(number).status());
  return Status::ok_status();
}

TEST(Status, reads_as_code_field_and_sentence) {
  EXPECT_EQ(invalid_argument("must be at least 1, got -3", "max_tokens").to_string(),
            "INVALID_ARGUMENT: max_tokens: must be at least 1, got -3");
  EXPECT_EQ(data_loss("file ends early").to_string(), "DATA_LOSS: file ends early");
  EXPECT_EQ(Status().to_string(), "OK");
}

TEST(Result, macros_pass_the_first_failure_on) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).status().message(), "must be even, got 3");
  EXPECT_EQ(only_even(5).field(), "number");
  EXPECT_TRUE(only_even(4).ok());
}

TEST(Result, holds_move_only_values) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(ResultDeath, reading_the_value_of_a_failure_ends_the_process_with_its_sentence) {
  EXPECT_DEATH((void)half(3).value(), "must be even, got 3");
  EXPECT_DEATH(Result<int>{Status()}, "needs a value or a failure");
}

}  // namespace
}  // namespace levada
