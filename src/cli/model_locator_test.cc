#include "cli/model_locator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace levada::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(ModelLocator, TheNameSmollm2IsThePackagedModel) {
  const auto path = locate_model("smollm2");
  ASSERT_TRUE(path.ok()) << path.status().to_string();
  EXPECT_EQ(path->extension(), ".gguf");
}

TEST(ModelLocator, APathIsTakenAsItIs) {
  EXPECT_EQ(locate_model(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama").value(),
            fs::path(LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama"));
}

TEST(ModelLocator, WhatIsNeitherIsAnsweredWithTheAcceptedForms) {
  const auto path = locate_model("smollm3");
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(path.status().message(), HasSubstr("smollm3"));
  EXPECT_THAT(path.status().message(), HasSubstr(".gguf"));
}

TEST(ModelLocator, AFoldersTokenizerIsItsTokenizerJson) {
  const fs::path folder = LEVADA_SOURCE_DIR "/tests/vectors/tiny/llama";
  EXPECT_EQ(locate_tokenizer(folder, "").value(), folder / "tokenizer.json");
  EXPECT_EQ(locate_tokenizer("/some/model.gguf", "").value(), fs::path("/some/model.gguf"));
  EXPECT_EQ(locate_tokenizer("/some/model.gguf", folder.string()).value(), folder / "tokenizer.json");
}

TEST(ModelLocator, AFolderWithoutATokenizerIsNamed) {
  const fs::path folder = fs::path(testing::TempDir()) / "levada_no_tokenizer";
  fs::create_directories(folder);
  EXPECT_THAT(locate_tokenizer(folder, "").status().message(), HasSubstr(folder.string()));
}

}  // namespace
}  // namespace levada::cli
