// What tokenizer files may say, and what becomes of damaged ones: a Status that names the field, never a crash.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/decoded_test.h"
#include "text/tokenizer.h"

namespace levada::text {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A folder of its own with tokenizer.json and, if given, tokenizer_config.json.
class Folder {
 public:
  Folder() : path_(fs::path(testing::TempDir()) / ("tokenizer_files_" + std::to_string(counter_++))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& content) const { std::ofstream(path_ / name) << content; }
  fs::path path(const std::string& name) const { return path_ / name; }
  Result<std::unique_ptr<Tokenizer>> load() const { return Tokenizer::from_json(path_ / "tokenizer.json"); }

 private:
  static inline int counter_ = 0;
  fs::path path_;
};

// a b c, "ab" by a merge, and <s> and </s> as special tokens.
json small() {
  return json::parse(R"({
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "decoder": {"type": "ByteLevel"},
    "post_processor": null,
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "</s>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": ["a b"]}})");
}

Result<std::unique_ptr<Tokenizer>> load(const json& tokenizer, const json& config = nullptr) {
  const Folder folder;
  folder.write("tokenizer.json", tokenizer.dump());
  if (!config.is_null()) folder.write("tokenizer_config.json", config.dump());
  return folder.load();
}

void expect_refused(const json& tokenizer, const std::string& named, const json& config = nullptr) {
  const auto loaded = load(tokenizer, config);
  ASSERT_FALSE(loaded.ok()) << named;
  EXPECT_NE(loaded.status().message().find(named), std::string::npos) << loaded.status().to_string();
}

json patched(const std::string& pointer, const json& value) {
  json tokenizer = small();
  tokenizer[json::json_pointer(pointer)] = value;
  return tokenizer;
}

TEST(TokenizerJson, MergesMayBeLinesOrPairs) {
  EXPECT_EQ(load(small()).value()->encode("abc"), (std::vector<Token>{3, 2}));
  EXPECT_EQ(load(patched("/model/merges", json::array({json::array({"a", "b"})}))).value()->encode("abc"),
            (std::vector<Token>{3, 2}));
}

TEST(TokenizerJson, WhatIsNotKnownIsRefusedByName) {
  expect_refused(patched("/model/type", "WordPiece"), "WordPiece");
  expect_refused(patched("/model/type", "Unigram"), "Unigram");
  expect_refused(patched("/model/byte_fallback", true), "byte_fallback");
  expect_refused(patched("/model/dropout", 0.1), "dropout");
  expect_refused(patched("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
  expect_refused(patched("/normalizer", {{"type", "Lowercase"}}), "Lowercase");
  expect_refused(patched("/pre_tokenizer", {{"type", "Metaspace"}}), "Metaspace");
  expect_refused(patched("/pre_tokenizer", nullptr), "pre_tokenizer");
  expect_refused(patched("/pre_tokenizer/add_prefix_space", true), "add_prefix_space");
  expect_refused(patched("/decoder", {{"type", "WordPiece"}}), "WordPiece");
  expect_refused(patched("/post_processor", {{"type", "BertProcessing"}}), "BertProcessing");
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", R"(\p{Han}+)"}}}, {"behavior", "Isolated"}};
  expect_refused(patched("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({split, byte_level})}}),
                 R"(\p{Han}+)");
}

TEST(TokenizerJson, WrongTypesAreNamed) {
  expect_refused(json::array(), "one JSON object");
  expect_refused(patched("/model", 5), "model");
  expect_refused(patched("/model/vocab", json::array()), "vocab");
  expect_refused(patched("/model/vocab/a", "zero"), "'a'");
  expect_refused(patched("/model/vocab/a", 1.5), "'a'");
  expect_refused(patched("/model/merges", "a b"), "merges");
  expect_refused(patched("/model/merges", json::array({1, 2})), "merges[0]");
  expect_refused(patched("/model/merges", json::array({json::array({"a", "b", "c"})})), "merges[0]");
  expect_refused(patched("/model/merges", json::array({"ab"})), "merges[0]");
  expect_refused(patched("/added_tokens", 7), "added_tokens");
  expect_refused(patched("/added_tokens/0", "x"), "added_tokens");
  expect_refused(patched("/added_tokens/0/special", "yes"), "special");
  expect_refused(patched("/normalizer", "NFC"), "normalizer");
  expect_refused(patched("/pre_tokenizer/type", 3), "pre_tokenizer");
}

TEST(TokenizerJson, IdsAreCheckedAgainstTheVocabulary) {
  expect_refused(patched("/model/vocab/a", -1), "-1");
  expect_refused(patched("/model/vocab/a", 1'000'000'000), "1000000000");
  expect_refused(patched("/model/vocab/a", 18446744073709551615u), "'a'");
  expect_refused(patched("/model/vocab/a", 1), "two tokens");
  expect_refused(patched("/added_tokens/0/id", -4), "-4");
  expect_refused(patched("/added_tokens/0/id", 5), "twice");
  expect_refused(patched("/added_tokens/0/id", 2), "belongs to another token");
  expect_refused(patched("/added_tokens/0/content", "a"), "vocabulary says 0");
  expect_refused(patched("/added_tokens/0/content", ""), "1 to 1024 bytes");
  expect_refused(patched("/model/merges", json::array({"a z"})), "'z'");
  expect_refused(patched("/model/merges", json::array({"b c"})), "'bc'");
  expect_refused(patched("/model/unk_token", "<unk>"), "<unk>");
}

TEST(TokenizerJson, HolesInTheVocabularyHaveNoBytes) {
  const auto tokenizer = load(patched("/model/vocab/c", 1000)).value();
  EXPECT_EQ(tokenizer->vocab_size(), 1001);
  EXPECT_EQ(tokenizer->bytes(500), "");
  EXPECT_EQ(decoded(*tokenizer, {0, 500, 1000}), "ac");
}

TEST(TokenizerJson, TheTemplateProcessorSaysWhatStandsAroundAText) {
  const json processor =
      json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>"}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [4]}, "</s>": {"id": "</s>", "ids": [5]}}}]})");
  const auto tokenizer = load(patched("/post_processor", processor)).value();
  EXPECT_EQ(tokenizer->encode("c"), (std::vector<Token>{4, 2, 5}));
  EXPECT_EQ(tokenizer->encode("c", {.add_special_tokens = false}), (std::vector<Token>{2}));

  json outside = patched("/post_processor", processor);
  outside["post_processor"]["processors"][1]["special_tokens"]["<s>"]["ids"] = {99};
  expect_refused(outside, "outside the vocabulary");
}

TEST(TokenizerConfig, NamesBosEosAndTheTemplate) {
  const json as_text = {{"bos_token", "<s>"}, {"eos_token", {{"content", "</s>"}}}, {"chat_template", "{{ 1 }}"}};
  const auto tokenizer = load(small(), as_text).value();
  EXPECT_EQ(tokenizer->bos(), 4);
  EXPECT_EQ(tokenizer->eos(), 5);
  EXPECT_EQ(tokenizer->chat_template(), "{{ 1 }}");
  const json as_list = {
      {"chat_template", {{{"name", "tool_use"}, {"template", "t"}}, {{"name", "default"}, {"template", "d"}}}}};
  EXPECT_EQ(load(small(), as_list).value()->chat_template(), "d");
  EXPECT_EQ(load(small()).value()->bos(), std::nullopt);
}

TEST(TokenizerConfig, AddBosTokenOverridesThePostProcessor) {
  EXPECT_EQ(load(small(), {{"bos_token", "<s>"}, {"add_bos_token", true}}).value()->encode("c"),
            (std::vector<Token>{4, 2}));
  EXPECT_EQ(load(small(), {{"bos_token", "<s>"}, {"add_bos_token", false}}).value()->encode("c"),
            (std::vector<Token>{2}));
}

TEST(TokenizerConfig, DamageIsNamed) {
  expect_refused(small(), "bos_token", {{"bos_token", "<missing>"}});
  expect_refused(small(), "eos_token", {{"eos_token", 5}});
  expect_refused(small(), "add_bos_token", {{"add_bos_token", "yes"}});
  expect_refused(small(), "chat_template", {{"chat_template", 5}});
  expect_refused(small(), "tokenizer_config.json", json::array());
}

TEST(TokenizerConfig, ATemplateFileBesideItWins) {
  const Folder folder;
  folder.write("tokenizer.json", small().dump());
  folder.write("tokenizer_config.json", R"({"chat_template": "old"})");
  folder.write("chat_template.jinja", "new");
  EXPECT_EQ(folder.load().value()->chat_template(), "new");
}

TEST(TokenizerJson, AMissingFileOrAFolderIsNotFound) {
  const Folder folder;
  EXPECT_EQ(folder.load().status().code(), StatusCode::kNotFound);
  fs::create_directory(folder.path("tokenizer.json"));
  EXPECT_EQ(folder.load().status().code(), StatusCode::kNotFound);
}

TEST(TokenizerJson, EveryTruncationIsAStatus) {
  const Folder folder;
  const std::string whole = small().dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    folder.write("tokenizer.json", whole.substr(0, size));
    EXPECT_FALSE(folder.load().ok()) << size;
  }
}

TEST(TokenizerJson, ChangedBytesGiveATokenizerOrAStatus) {
  const Folder folder;
  const std::string whole = small().dump();
  const bool ok = rc::check("no crash", [&] {
    std::string damaged = whole;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i) {
      damaged[*rc::gen::inRange<std::size_t>(0, damaged.size())] =
          *rc::gen::element('0', '9', '-', '"', '{', '}', '[', ']', ',', ' ', 'a', '\xFF');
    }
    folder.write("tokenizer.json", damaged);
    const auto loaded = folder.load();
    if (loaded.ok()) (*loaded)->encode("ab<s>c</s> abc 12");
  });
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace levada::text
