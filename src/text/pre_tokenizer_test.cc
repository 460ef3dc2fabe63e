#include "text/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace levada::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;

const std::string kPreTokenizers = std::string(LEVADA_SOURCE_DIR) + "/tests/vectors/pretokenizers/";

std::vector<std::string> pieces(PreTokenizer kind, std::string_view text) {
  std::vector<std::string> all;
  PieceSplitter splitter(kind, text);
  for (std::string_view piece; splitter.next(piece);) all.emplace_back(piece);
  return all;
}

TEST(PieceSplitter, LeavesTheLastSpaceToTheWordBehindIt) {
  EXPECT_THAT(pieces(PreTokenizer::kGpt2, "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces(PreTokenizer::kQwen2, "a   b"), ElementsAre("a", "  ", " b"));
}

TEST(PieceSplitter, SmollmSeesTheTextBeforeANumberAsIfItEndedThere) {
  EXPECT_THAT(pieces(PreTokenizer::kGpt2, "a  12"), ElementsAre("a", " ", " 12"));
  EXPECT_THAT(pieces(PreTokenizer::kSmollm, "a  12"), ElementsAre("a", "  ", "1", "2"));
}

TEST(PieceSplitter, QwenCutsNumbersIntoDigitsAndLlamaIntoThrees) {
  EXPECT_THAT(pieces(PreTokenizer::kQwen2, "1234"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(pieces(PreTokenizer::kLlamaBpe, "1234"), ElementsAre("123", "4"));
}

TEST(PieceSplitter, OnlyQwenAndLlamaKnowUpperCaseContractions) {
  EXPECT_THAT(pieces(PreTokenizer::kGpt2, "WE'LL"), ElementsAre("WE", "'", "LL"));
  EXPECT_THAT(pieces(PreTokenizer::kQwen2, "WE'LL"), ElementsAre("WE", "'LL"));
}

TEST(PieceSplitter, UnknownNamesAndRegexesAreNotGuessed) {
  EXPECT_FALSE(pre_tokenizer_by_name("tekken"));
  EXPECT_FALSE(pre_tokenizer_by_regex(R"(\p{N}|\p{L}+)"));
}

TEST(PieceSplitter, ThePiecesConcatenatedAreTheText) {
  const bool ok = rc::check("whatever the bytes", [](const std::string& text) {
    const auto kind =
        *rc::gen::element(PreTokenizer::kGpt2, PreTokenizer::kSmollm, PreTokenizer::kQwen2, PreTokenizer::kLlamaBpe);
    std::string joined;
    for (const std::string& piece : pieces(kind, text)) {
      RC_ASSERT(!piece.empty());
      joined += piece;
    }
    RC_ASSERT(joined == text);
  });
  EXPECT_TRUE(ok);
}

class PreTokenizerGoldens : public testing::TestWithParam<const char*> {};

// The reference is Hugging Face's tokenizers library (tests/vectors/make_pretokenizers.py).
TEST_P(PreTokenizerGoldens, EncodeAsHuggingFaceDoes) {
  const auto tokenizer = Tokenizer::from_json(kPreTokenizers + GetParam() + ".json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const json golden = json::parse(std::ifstream(kPreTokenizers + "golden.json"));
  ASSERT_GE(golden[GetParam()].size(), 40u);
  for (const json& sample : golden[GetParam()]) {
    const auto text = sample["text"].get<std::string>();
    const auto ids = (*tokenizer)->encode(text, {.add_special_tokens = sample["special"].get<bool>()});
    EXPECT_EQ(ids, sample["ids"].get<std::vector<Token>>()) << sample.dump();
  }
}

INSTANTIATE_TEST_SUITE_P(All, PreTokenizerGoldens, testing::Values("gpt2", "smollm", "qwen2", "llama3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levada::text
