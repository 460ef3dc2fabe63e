#include "consumer/run_card.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "consumer/test_samples.h"
#include "support/temporary_folder.h"

namespace levada::consumer {
namespace {

class RunCardTest : public testing::Test {
 protected:
  std::string fault_of(const std::string& text) {
    std::ofstream(folder_ / kRunCardName) << text;
    const auto card = read_run_card(folder_);
    return card.ok() ? "accepted" : card.status().field();
  }
  const test::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(RunCardTest, WhatIsWrittenIsRead) {
  const RunCard card = small_card(5);
  ASSERT_TRUE(write_run_card(folder_, card).ok());
  const auto read = read_run_card(folder_);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ(**read, card);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run.json.tmp"));
}

TEST_F(RunCardTest, NotYetThereIsNoFailure) {
  const auto read = read_run_card(folder_);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->has_value());
}

TEST_F(RunCardTest, ADamagedCardNamesItsField) {
  EXPECT_EQ(fault_of("{}"), "version");
  EXPECT_EQ(fault_of("nonsense"), "");
  ASSERT_TRUE(write_run_card(folder_, small_card(2)).ok());
  std::ifstream stream(folder_ / kRunCardName);
  const std::string good((std::istreambuf_iterator<char>(stream)), {});
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return fault_of(text);
  };
  EXPECT_EQ(changed("\"version\":1", "\"version\":2"), "version");
  EXPECT_EQ(changed("\"bfloat16\"", "\"bf16\""), "dtype");
  EXPECT_EQ(changed("\"prompts\":2", "\"prompts\":0"), "prompts");
  EXPECT_EQ(changed("\"total_samples\":2", "\"total_samples\":3"), "input_hashes");
  EXPECT_EQ(changed("\"aux_layer_ids\":[1,2]", "\"aux_layer_ids\":[1,\"2\"]"), "aux_layer_ids");
}

}  // namespace
}  // namespace levada::consumer
