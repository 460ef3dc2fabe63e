// Tokenizers from GGUF metadata, given by a fake file: what the keys mean and what damage is called.
#include <gtest/gtest.h>

#include <map>

#include "files/gguf.h"
#include "text/tokenizer.h"

namespace levada::text {
namespace {

class FakeGguf : public files::GgufFile {
 public:
  std::map<std::string, std::int64_t, std::less<>> integers_by_key;
  std::map<std::string, bool, std::less<>> booleans_by_key;
  std::map<std::string, std::string, std::less<>> strings_by_key;
  std::map<std::string, std::vector<std::string_view>, std::less<>> lists_by_key;
  std::map<std::string, std::vector<std::int64_t>, std::less<>> integer_lists_by_key;

  std::optional<std::int64_t> integer(std::string_view key) const override { return look_up(integers_by_key, key); }
  std::optional<double> number(std::string_view key) const override { return integer(key); }
  std::optional<bool> boolean(std::string_view key) const override { return look_up(booleans_by_key, key); }
  std::optional<std::string_view> string(std::string_view key) const override {
    const auto found = strings_by_key.find(key);
    return found == strings_by_key.end() ? std::nullopt : std::optional<std::string_view>(found->second);
  }
  const std::vector<std::string_view>* strings(std::string_view key) const override {
    const auto found = lists_by_key.find(key);
    return found == lists_by_key.end() ? nullptr : &found->second;
  }
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const override {
    return look_up(integer_lists_by_key, key);
  }
  std::vector<std::string> keys() const override { return {}; }
  const files::TensorInfo* find(std::string_view) const override { return nullptr; }
  const std::vector<files::TensorInfo>& tensors() const override { return none_; }
  void drop_resident(const files::TensorInfo&) const override {}

 private:
  template <class Map>
  static std::optional<typename Map::mapped_type> look_up(const Map& map, std::string_view key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional<typename Map::mapped_type>(found->second);
  }
  std::vector<files::TensorInfo> none_;
};

// 0 a, 1 b, 2 c, 3 ab, 4 <s> (control), 5 <tool> (user-defined), 6 [PAD] (unused)
FakeGguf small() {
  FakeGguf gguf;
  gguf.strings_by_key = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "qwen2"}};
  gguf.lists_by_key = {{"tokenizer.ggml.tokens", {"a", "b", "c", "ab", "<s>", "<tool>", "[PAD]"}},
                       {"tokenizer.ggml.merges", {"a b"}}};
  gguf.integer_lists_by_key = {{"tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 4, 5}}};
  gguf.integers_by_key = {{"tokenizer.ggml.bos_token_id", 4}};
  return gguf;
}

void expect_refused(const FakeGguf& gguf, const std::string& named) {
  const auto tokenizer = Tokenizer::from_gguf(gguf, "m.gguf");
  ASSERT_FALSE(tokenizer.ok()) << named;
  EXPECT_EQ(tokenizer.status().message().find("m.gguf: "), 0u) << tokenizer.status().to_string();
  EXPECT_NE(tokenizer.status().message().find(named), std::string::npos) << tokenizer.status().to_string();
}

TEST(TokenizerGguf, TokenTypesSayWhatIsSpecial) {
  const auto tokenizer = Tokenizer::from_gguf(small(), "m.gguf").value();
  EXPECT_EQ(tokenizer->encode("ab<s>c<tool>"), (std::vector<Token>{3, 4, 2, 5}));
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_FALSE(tokenizer->is_special(5));
  EXPECT_EQ(tokenizer->bytes(6), "");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->bos(), 4);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
}

TEST(TokenizerGguf, BosIsAddedWhenTheFileSaysSoOrLlama3DoesByDefault) {
  FakeGguf gguf = small();
  EXPECT_EQ(Tokenizer::from_gguf(gguf, "m.gguf").value()->encode("c"), (std::vector<Token>{2}));
  gguf.booleans_by_key["tokenizer.ggml.add_bos_token"] = true;
  EXPECT_EQ(Tokenizer::from_gguf(gguf, "m.gguf").value()->encode("c"), (std::vector<Token>{4, 2}));
  gguf.booleans_by_key.clear();
  gguf.strings_by_key["tokenizer.ggml.pre"] = "llama-bpe";
  EXPECT_EQ(Tokenizer::from_gguf(gguf, "m.gguf").value()->encode("c"), (std::vector<Token>{4, 2}));
}

TEST(TokenizerGguf, QwenTextIsNormalized) {
  FakeGguf gguf = small();
  // The two bytes of U+00E9 in the byte alphabet, and the letter they make.
  gguf.lists_by_key["tokenizer.ggml.tokens"] = {"Ã", "©", "e", "Ã©", "<s>", "<tool>", "[PAD]"};
  gguf.lists_by_key["tokenizer.ggml.merges"] = {"Ã ©"};
  const std::string decomposed = "e\xCC\x81";
  EXPECT_EQ(Tokenizer::from_gguf(gguf, "m.gguf").value()->encode(decomposed), (std::vector<Token>{3}));
  gguf.strings_by_key["tokenizer.ggml.pre"] = "gpt-2";
  EXPECT_EQ(Tokenizer::from_gguf(gguf, "m.gguf").value()->encode(decomposed), (std::vector<Token>{2}));
}

TEST(TokenizerGguf, UnknownModelsAndPreTokenizersAreRefusedByName) {
  FakeGguf gguf = small();
  gguf.strings_by_key["tokenizer.ggml.pre"] = "tekken";
  expect_refused(gguf, "tekken");
  gguf.strings_by_key["tokenizer.ggml.model"] = "llama";
  expect_refused(gguf, "'llama'");
  gguf.strings_by_key.clear();
  expect_refused(gguf, "tokenizer.ggml.model is missing");
}

TEST(TokenizerGguf, DamageIsNamed) {
  FakeGguf gguf = small();
  gguf.integer_lists_by_key["tokenizer.ggml.token_type"].pop_back();
  expect_refused(gguf, "6 entries for 7 tokens");
  gguf = small();
  gguf.integer_lists_by_key["tokenizer.ggml.token_type"][2] = 77;
  expect_refused(gguf, "token_type[2] is 77");
  gguf = small();
  gguf.lists_by_key["tokenizer.ggml.tokens"][1] = "a";
  expect_refused(gguf, "twice");
  gguf = small();
  gguf.lists_by_key["tokenizer.ggml.tokens"][1] = "\xFF";
  expect_refused(gguf, "tokens[1] is not valid UTF-8");
  gguf = small();
  gguf.lists_by_key["tokenizer.ggml.merges"][0] = "a z";
  expect_refused(gguf, "'z'");
  gguf = small();
  gguf.lists_by_key["tokenizer.ggml.merges"][0] = std::string_view("a z\0\n!", 6);
  expect_refused(gguf, "'z\\x00\\x0a!' is not in the vocabulary");  // no byte of a file ends the sentence
  gguf = small();
  gguf.lists_by_key["tokenizer.ggml.merges"][0] = "ab";
  expect_refused(gguf, "merges[0]");
  gguf = small();
  gguf.integers_by_key["tokenizer.ggml.bos_token_id"] = 7;
  expect_refused(gguf, "bos_token_id is 7");
  gguf = small();
  gguf.lists_by_key.erase("tokenizer.ggml.tokens");
  expect_refused(gguf, "tokens is missing");
}

}  // namespace
}  // namespace levada::text
