#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "files/gguf.h"
#include "text/stream_decoder.h"

namespace levada::text {
namespace {

using nlohmann::json;

const std::filesystem::path kVectors = std::filesystem::path(LEVADA_SOURCE_DIR) / "tests/vectors";

json load(const std::filesystem::path& file) { return json::parse(std::ifstream(file)); }

std::unique_ptr<Tokenizer> from_json(const std::filesystem::path& file) {
  auto tokenizer = Tokenizer::from_json(file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

// decode() gives bytes; the reference's decoded text has U+FFFD where they aren't valid, as a stream has.
std::string streamed(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  StreamDecoder decoder(tokenizer, {}, false);
  std::string text;
  for (const Token id : ids) decoder.push(id, text);
  decoder.finish(text);
  return text;
}

void expect_golden_tokenizations(const Tokenizer& tokenizer) {
  const json golden = load(kVectors / "smollm2_golden.json");
  ASSERT_EQ(golden["tokenization"].size(), 40u);
  for (const json& sample : golden["tokenization"]) {
    const auto text = sample["text"].get<std::string>();
    const auto ids = tokenizer.encode(text);
    EXPECT_EQ(ids, sample["ids"].get<std::vector<Token>>()) << text;
    EXPECT_EQ(streamed(tokenizer, ids), sample["decoded"].get<std::string>()) << text;
  }
}

TEST(SmolLm2FromJson, EncodesAndDecodesAsHuggingFaceDoes) {
  const auto tokenizer = from_json(kVectors / "smollm2_tokenizer/tokenizer.json");
  ASSERT_NE(tokenizer, nullptr);
  expect_golden_tokenizations(*tokenizer);
}

TEST(SmolLm2FromGguf, EncodesAndDecodesAsHuggingFaceDoes) {
  const auto file = files::GgufFile::open(LEVADA_SMOLLM2_GGUF);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto tokenizer = Tokenizer::from_gguf(**file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  expect_golden_tokenizations(**tokenizer);
}

}  // namespace
}  // namespace levada::text
