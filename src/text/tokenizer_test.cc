#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files/gguf.h"
#include "support/instrumented.h"
#include "text/decoded_test.h"
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
  const auto tokenizer = Tokenizer::from_gguf(**file, LEVADA_SMOLLM2_GGUF);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  expect_golden_tokenizations(**tokenizer);
}

TEST(TinyCheckpoints, TheirTokenizersLoadAndKnowTheirGoldenPrompts) {
  for (const char* model : {"llama", "qwen3"}) {
    const auto tokenizer = from_json(kVectors / "tiny" / model / "tokenizer.json");
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->vocab_size(), 384);
    EXPECT_EQ(tokenizer->token_id("<|im_start|>"), tokenizer->bos());
    EXPECT_EQ(tokenizer->token_id("<|im_end|>"), tokenizer->eos());
    const std::string text = "The tokenizer of a tiny model: 12 digits, é and 😀.";
    EXPECT_EQ(decoded(*tokenizer, tokenizer->encode(text)), text);
  }
}

TEST(Tokenizer, JsonAndGgufOfOneModelAreTheSameTokenizer) {
  const auto json_made = from_json(kVectors / "smollm2_tokenizer/tokenizer.json");
  const auto file = files::GgufFile::open(LEVADA_SMOLLM2_GGUF);
  const auto gguf_made = Tokenizer::from_gguf(**file, LEVADA_SMOLLM2_GGUF).value();
  ASSERT_EQ(json_made->vocab_size(), gguf_made->vocab_size());
  for (Token id = 0; id < json_made->vocab_size(); ++id) {
    ASSERT_EQ(json_made->bytes(id), gguf_made->bytes(id)) << id;
    ASSERT_EQ(json_made->is_special(id), gguf_made->is_special(id)) << id;
  }
  EXPECT_EQ(json_made->bos(), gguf_made->bos());
  EXPECT_EQ(json_made->eos(), gguf_made->eos());
  EXPECT_EQ(json_made->chat_template(), gguf_made->chat_template());
}

TEST(Tokenizer, EveryTokensBytesAreFoundAgainByTheirText) {
  const auto tokenizer = from_json(kVectors / "smollm2_tokenizer/tokenizer.json");
  for (Token id = 0; id < tokenizer->vocab_size(); ++id) ASSERT_EQ(tokenizer->token_id(tokenizer->bytes(id)), id);
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->bytes(-1), "");
  EXPECT_EQ(tokenizer->bytes(tokenizer->vocab_size()), "");
  EXPECT_FALSE(tokenizer->is_special(-1));
}

TEST(Tokenizer, DecodeOfEncodeIsTheTextWhenEveryByteHasAToken) {
  const auto tokenizer = from_json(kVectors / "pretokenizers/llama3.json");
  const bool ok = rc::check("any text", [&] {
    std::string text = *rc::gen::arbitrary<std::string>();
    if (find_invalid_utf8(text) != std::string::npos) std::erase_if(text, [](char c) { return c < 0; });
    RC_ASSERT(decoded(*tokenizer, tokenizer->encode(text)) == text);  // decode leaves out the bos that encode adds
  });
  EXPECT_TRUE(ok);
}

TEST(Tokenizer, SpecialTokensInATextAreParsedOnlyWhenAsked) {
  const auto tokenizer = from_json(kVectors / "smollm2_tokenizer/tokenizer.json");
  const std::string text = "<|im_start|>user";
  EXPECT_EQ(tokenizer->encode(text).front(), tokenizer->bos());
  const auto plain = tokenizer->encode(text, {.parse_special_tokens = false});
  EXPECT_TRUE(std::none_of(plain.begin(), plain.end(), [&](Token id) { return tokenizer->is_special(id); }));
  EXPECT_EQ(decoded(*tokenizer, plain), text);
}

// Lengths at which a quadratic step anywhere would take minutes.
TEST(Tokenizer, AMegabyteOfOneCharacterIsEncodedInNearLinearTime) {
  const auto tokenizer = from_json(kVectors / "smollm2_tokenizer/tokenizer.json");
  for (const char* unit : {"a", " ", "\n", "7", "'", " \n", "<|im_start|", "é", "\xCC\x96\xCC\x81"}) {
    std::string text;
    while (text.size() < (test::kInstrumented ? 1 << 16 : 1 << 20)) text += unit;
    EXPECT_EQ(decoded(*tokenizer, tokenizer->encode(text), false), text) << unit;
  }
}

TEST(FindInvalidUtf8, KnowsWellFormedTextFromSurrogatesAndOverlongForms) {
  constexpr auto kNone = std::string_view::npos;
  EXPECT_EQ(find_invalid_utf8(""), kNone);
  EXPECT_EQ(find_invalid_utf8("plain ascii, longer than a word"), kNone);
  EXPECT_EQ(find_invalid_utf8("é\xEF\xBF\xBF\xF4\x8F\xBF\xBF"), kNone);
  EXPECT_EQ(find_invalid_utf8("abc\xED\xA0\x80"), 3u);  // surrogate
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u);         // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("12345678\xF4\x90\x80\x80"), 8u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("é\xF0\x9F\x98"), 2u);             // cut
}

}  // namespace
}  // namespace levada::text
