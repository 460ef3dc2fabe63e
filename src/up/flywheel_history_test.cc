#include "up/flywheel_history.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/temporary_folder.h"

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

TEST(FlywheelHistory, AFileThatHasGrownLongKeepsItsNewerHalfInWholeLines) {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "flywheel.jsonl";
  EXPECT_TRUE(shorten_history(file, 100).ok()) << "there is none yet";
  std::string text;
  for (int number = 100; number < 200; ++number) text += round(number, "null");
  std::ofstream(file) << text;
  ASSERT_TRUE(shorten_history(file, text.size()).ok());
  EXPECT_EQ(std::filesystem::file_size(file), text.size());
  ASSERT_TRUE(shorten_history(file, text.size() - 1).ok());
  std::ifstream lines(file);
  const std::string kept = history_text(lines, 1000);
  EXPECT_EQ(kept.find("round 150"), std::string::npos) << "cut in two, so it goes";
  EXPECT_NE(kept.find("round 151"), std::string::npos);
  EXPECT_NE(kept.find("round 199"), std::string::npos);
}

}  // namespace
}  // namespace levada::up
