// A GGUF's tokenizer, written as a folder and loaded again, is the same tokenizer; transformers' own loading is checked in
// tests/clients.
#include "text/tokenizer_folder.h"

#include <gtest/gtest.h>

#include "files/gguf.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"

namespace levada::text {
namespace {

class TokenizerFolder : public testing::Test {
 protected:
  TokenizerFolder() : file_(files::GgufFile::open(LEVADA_SMOLLM2_GGUF).value()) {
    files_ = tokenizer_files(*file_, LEVADA_SMOLLM2_GGUF).value();
  }

  std::unique_ptr<files::GgufFile> file_;
  TokenizerFiles files_;
  test::TemporaryFolder parent_;
};

TEST_F(TokenizerFolder, LoadedAgainGivesTheSameIdsNamesAndTemplate) {
  const auto folder = write_tokenizer_folder(files_, parent_.path());
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  const auto again = Tokenizer::from_json(*folder / "tokenizer.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  const auto original = Tokenizer::from_gguf(*file_, LEVADA_SMOLLM2_GGUF).value();
  ASSERT_EQ((*again)->vocab_size(), original->vocab_size());
  for (Token id = 0; id < original->vocab_size(); ++id) {
    ASSERT_EQ((*again)->bytes(id), original->bytes(id)) << id;
    ASSERT_EQ((*again)->is_special(id), original->is_special(id)) << id;
  }
  EXPECT_EQ((*again)->bos(), original->bos());
  EXPECT_EQ((*again)->eos(), original->eos());
  EXPECT_EQ((*again)->chat_template(), original->chat_template());
  for (const char* text : {"Hello, world! 2026", "<|im_start|>user\n\"quoted\" \\ back\x01<|im_end|>", "é 😀\r\n  x"}) {
    EXPECT_EQ((*again)->encode(text), original->encode(text)) << text;
  }
}

TEST_F(TokenizerFolder, TheSameFilesGetTheSameFolderAndOthersAnother) {
  const auto first = write_tokenizer_folder(files_, parent_.path()).value();
  EXPECT_EQ(write_tokenizer_folder(files_, parent_.path()).value(), first);
  files_.tokenizer_config_json += " ";
  EXPECT_NE(write_tokenizer_folder(files_, parent_.path()).value(), first);
}

TEST_F(TokenizerFolder, AParentThatCannotBeWrittenIsAStatusThatNamesIt) {
  const auto folder = write_tokenizer_folder(files_, parent_.write("file", "x"));
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.status().message().find("file"), std::string::npos);
}

}  // namespace
}  // namespace levada::text
