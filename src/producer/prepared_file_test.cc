#include "producer/prepared_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace levada::producer {
namespace {

class PreparedFileTest : public testing::Test {
 protected:
  PreparedFileTest() {
    preparation_.samples = {{"a", {1, 2, 3}, {0, 1, 1}}, {"", {4, 5}, {1, 1}}};
    preparation_.dropped = {{"no room for an answer", 3}};
    preparation_.offered = 5;
  }

  std::string content() const {
    std::ifstream stream(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  StatusCode code_of(const std::string& content) {
    std::ofstream(file_, std::ios::binary) << content;
    return read_prepared(file_, made_from_).status().code();
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path file_ = temporary_.path() / "prepared.jsonl";
  const MadeFrom made_from_ = {{"prompts", "00"}, {"max_length", "64"}};
  Preparation preparation_;
};

TEST_F(PreparedFileTest, WhatIsWrittenIsRead) {
  ASSERT_TRUE(write_prepared(file_, made_from_, preparation_).ok());
  const auto read = read_prepared(file_, made_from_);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ((*read)->samples, preparation_.samples);
  EXPECT_EQ((*read)->dropped, preparation_.dropped);
  EXPECT_EQ((*read)->offered, 5);
}

TEST_F(PreparedFileTest, NoFileIsNoFailure) {
  const auto read = read_prepared(file_, made_from_);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->has_value());
}

TEST_F(PreparedFileTest, F42AnotherMakingIsRefusedWithTheNameOfWhatDiffers) {
  ASSERT_TRUE(write_prepared(file_, made_from_, preparation_).ok());
  const auto read = read_prepared(file_, {{"prompts", "00"}, {"max_length", "128"}});
  EXPECT_EQ(read.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(read.status().field(), "max_length");
  EXPECT_NE(read.status().message().find("\"64\""), std::string::npos) << read.status().message();
}

TEST_F(PreparedFileTest, EveryCutAndEveryChangedByteIsNoticed) {
  ASSERT_TRUE(write_prepared(file_, made_from_, preparation_).ok());
  const std::string good = content();
  for (std::size_t length = 0; length + 1 < good.size(); ++length) {
    EXPECT_EQ(code_of(good.substr(0, length)), StatusCode::kDataLoss) << length;
  }
  for (std::size_t i = 0; i < good.size() - 1; ++i) {
    std::string changed = good;
    changed[i] = changed[i] == '0' ? '1' : '0';
    if (changed == good) continue;
    EXPECT_EQ(code_of(changed), StatusCode::kDataLoss) << i;
  }
}

}  // namespace
}  // namespace levada::producer
