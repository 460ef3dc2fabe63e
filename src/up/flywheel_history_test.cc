#include "up/flywheel_history.h"

#include <gtest/gtest.h>

#include <sstream>

namespace levada::up {
namespace {

std::string round(int number, const char* promoted) {
  return R"({"round":)" + std::to_string(number) +
         R"(,"samples_seen":69280,"before":{"accept_length":2.75,"ci95":0.23,"tokens_per_s":2608.1},)"
         R"("ngram":{"accept_length":1.19,"ci95":0.14,"tokens_per_s":1826.6},)"
         R"("drafts":{"b8":{"accept_length":3.1907,"ci95":0.287,"tokens_per_s":3039.7}},"promoted":)" +
         promoted + "}\n";
}

TEST(FlywheelHistory, ARoundSaysWhatItsDraftsGaveAndWhatWasThereBefore) {
  std::istringstream lines(round(2, "\"b8\""));
  EXPECT_EQ(history_text(lines, 5),
            "tokens a step in service, on prompts held out:\n"
            "  round 2        69280 samples  b8 3.19 ± 0.29, 3040 tok/s  before 2.75 ± 0.23, 2608 tok/s  "
            "n-grams 1.19 ± 0.14, 1827 tok/s  promoted b8\n");
}

TEST(FlywheelHistory, OnlyTheNewestRoundsAreShown) {
  std::istringstream lines(round(1, "null") + round(2, "null") + round(3, "\"b8\""));
  const std::string text = history_text(lines, 2);
  EXPECT_EQ(text.find("round 1"), std::string::npos);
  EXPECT_LT(text.find("round 2"), text.find("round 3"));
  EXPECT_NE(text.find("none promoted"), std::string::npos);
}

TEST(FlywheelHistory, ALineThatWasCutOffIsPassedOver) {
  std::istringstream lines(round(1, "\"b8\"") + R"({"round":2,"samp)");
  EXPECT_EQ(history_text(lines, 5).find("round 2"), std::string::npos);
  std::istringstream nothing("not json\n[1]\n");
  EXPECT_EQ(history_text(nothing, 5), "");
}

}  // namespace
}  // namespace levada::up
