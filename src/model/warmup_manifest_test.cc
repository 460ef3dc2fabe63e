// The warm-up manifest as the next start finds it: whole, damaged, made by others, not there.
#include "model/warmup_manifest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/thread.h"

namespace levada::model {
namespace {

namespace fs = std::filesystem;

const WarmupKey kKey{"b1", "NVIDIA H200", "580.1, runtime 13000", "llama 576x1536 bfloat16"};
const WarmupParts kParts{{"linear-plans", "a header\n1 2 3\n"}, {"empty", ""}, {"binary", std::string("\0\n\xff", 3)}};

class WarmupManifestTest : public testing::Test {
 protected:
  ~WarmupManifestTest() override { fs::remove_all(folder_); }
  fs::path file() const { return manifest_file(folder_ / "made" / "on demand", kKey); }
  StatusCode code_of(const std::string& text) { return decode_manifest(text, kKey).status().code(); }

  const fs::path folder_ = fs::temp_directory_path() / ("levada_warmup_" + std::to_string(::getpid()));
};

TEST_F(WarmupManifestTest, WhatWasWrittenIsRead) {
  ASSERT_TRUE(write_manifest(file(), kKey, kParts).ok());
  EXPECT_EQ(read_manifest(file(), kKey).value(), kParts);
}

TEST_F(WarmupManifestTest, NoFileIsNotFound) {
  EXPECT_EQ(read_manifest(file(), kKey).status().code(), StatusCode::kNotFound);
}

TEST_F(WarmupManifestTest, ACutOrAlteredByteAnywhereIsDamage) {
  const std::string text = encode_manifest(kKey, kParts);
  ASSERT_EQ(code_of(text), StatusCode::kOk);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string altered = text;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    EXPECT_EQ(code_of(altered), StatusCode::kDataLoss) << "byte " << i;
    EXPECT_EQ(code_of(text.substr(0, i)), StatusCode::kDataLoss) << "cut at " << i;
  }
  EXPECT_EQ(code_of(text + "x"), StatusCode::kDataLoss);
}

TEST_F(WarmupManifestTest, AnotherKeyIsRefusedByName) {
  const std::string text = encode_manifest(kKey, kParts);
  const auto refusal = [&](std::string WarmupKey::*field, const std::string& name) {
    WarmupKey other = kKey;
    other.*field = "something else";
    const Status status = decode_manifest(text, other).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("something else"), std::string::npos) << status.message();
  };
  refusal(&WarmupKey::build, "build b1");
  refusal(&WarmupKey::gpu, "gpu NVIDIA H200");
  refusal(&WarmupKey::driver, "driver 580.1");
  refusal(&WarmupKey::model, "model llama");
}

TEST_F(WarmupManifestTest, ANewBuildReplacesTheOldOnesFileAndAnotherModelHasItsOwn) {
  WarmupKey rebuilt = kKey, other_model = kKey;
  rebuilt.build = "b2";
  other_model.model = "qwen3";
  EXPECT_EQ(manifest_file(folder_, rebuilt), manifest_file(folder_, kKey));
  EXPECT_NE(manifest_file(folder_, other_model), manifest_file(folder_, kKey));
  ASSERT_TRUE(write_manifest(file(), kKey, kParts).ok());
  EXPECT_EQ(read_manifest(file(), rebuilt).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(write_manifest(file(), rebuilt, {}).ok());
  EXPECT_TRUE(read_manifest(file(), rebuilt).value().empty());
}

TEST_F(WarmupManifestTest, AWordWithALineEndStaysOneLine) {
  WarmupKey odd = kKey;
  odd.driver = "580\nbuild b9\n";
  EXPECT_EQ(decode_manifest(encode_manifest(odd, kParts), odd).value(), kParts);
}

TEST_F(WarmupManifestTest, AFolderThatCantBeMadeIsSaid) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "in the way";
  const Status status = write_manifest(folder_ / "file" / "below", kKey, kParts);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find((folder_ / "file").string()), std::string::npos);
}

TEST_F(WarmupManifestTest, AWriterThatDiedBesideItLeavesTheOldFile) {
  ASSERT_TRUE(write_manifest(file(), kKey, kParts).ok());
  std::ofstream(file().string() + ".1.tmp") << encode_manifest(kKey, {}).substr(0, 20);
  EXPECT_EQ(read_manifest(file(), kKey).value(), kParts);
}

}  // namespace
}  // namespace levada::model
