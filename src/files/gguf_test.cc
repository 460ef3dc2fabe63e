// GGUF files: what is read, and how each kind of damage is named.
#include "files/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "files/test_files.h"

namespace levada::files {
namespace {

using test::Bytes;
using test::Damage;
using test::Gguf;
using test::TemporaryFolder;
using ::testing::HasSubstr;

std::vector<float> decode_all(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  decode_to_f32(tensor, 0, tensor.elements(), values.data());
  return values;
}

std::string u32(std::uint32_t value) { return Bytes().add(value).data; }

class GgufVersions : public ::testing::TestWithParam<std::uint32_t> {};

//  header │ metadata │ tensors: w {3, 2} at 0, b {2} at 32 │ pad │ w: 1..6 (24 bytes) │ pad │ b: 7 8
TEST_P(GgufVersions, TensorsComeBackInPyTorchOrder) {
  const TemporaryFolder folder;
  Gguf gguf{.version = GetParam()};
  gguf.entry("general.name", 8, Bytes().string("tiny").data);
  gguf.tensor("w", {3, 2}, 0, 0).tensor("b", {2}, 0, 32);
  Bytes data;
  for (const float value : {1.f, 2.f, 3.f, 4.f, 5.f, 6.f}) data.add(value);
  gguf.data = data.pad_to(32).add(7.f).add(8.f).data;
  const auto file = GgufFile::open(folder.write("m.gguf", gguf.file()));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const TensorInfo* w = (*file)->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(decode_all(*w), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(decode_all(*(*file)->find("b")), (std::vector<float>{7, 8}));
  EXPECT_EQ((*file)->find("c"), nullptr);
  EXPECT_EQ((*file)->string("general.name"), "tiny");
  (*file)->drop_resident(*w);
  EXPECT_EQ(decode_all(*w), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

INSTANTIATE_TEST_SUITE_P(TwoAndThree, GgufVersions, ::testing::Values(2u, 3u));

TEST(GgufFile, DeclaredAlignmentIsUsed) {
  const TemporaryFolder folder;
  Gguf gguf{.alignment = 256};
  gguf.entry("general.alignment", 4, u32(256)).tensor("w", {1}, 0, 256);
  gguf.data = Bytes().pad_to(256).text(std::string(256, 'x')).add(3.f).data;
  const auto file = GgufFile::open(folder.write("m.gguf", gguf.file()));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(decode_all(*(*file)->find("w")), (std::vector<float>{3}));
}

// Written by the PyPI package gguf: see tests/vectors/make_gguf_quants.py for what it holds.
class GgufMetadata : public ::testing::Test {
 protected:
  GgufMetadata() : file_(GgufFile::open(test::vectors() / "gguf_quants/quants.gguf")) {}
  const GgufFile& file() { return **file_; }
  Result<std::unique_ptr<GgufFile>> file_;
};

TEST_F(GgufMetadata, IntegersOfAnyWidthAreWidened) {
  const std::map<std::string, std::int64_t> expected = {
      {"test.u8", 200},         {"test.i8", -100},         {"test.u16", 60000},     {"test.i16", -30000},
      {"test.u32", 4000000000}, {"test.i32", -2000000000}, {"test.u64", INT64_MAX}, {"test.i64", INT64_MIN}};
  for (const auto& [key, value] : expected) EXPECT_EQ(file().integer(key), value) << key;
  EXPECT_EQ(file().integer("test.u64_wide"), std::nullopt);
  EXPECT_EQ(file().number("test.u64_wide"), 0x1p63);
}

TEST_F(GgufMetadata, NumbersAreFloatsAndIntegers) {
  EXPECT_EQ(file().number("test.f32"), 0.25);
  EXPECT_EQ(file().number("test.f64"), 0.1);
  EXPECT_EQ(file().number("test.i8"), -100.0);
}

TEST_F(GgufMetadata, TextBoolsAndArraysComeBack) {
  EXPECT_EQ(file().string("test.string"), "häuser");
  EXPECT_EQ(file().boolean("test.bool"), true);
  ASSERT_NE(file().strings("test.strings"), nullptr);
  EXPECT_EQ(*file().strings("test.strings"), (std::vector<std::string_view>{"a", "", "ж"}));
  EXPECT_EQ(file().integers("test.i32s"), (std::vector<std::int64_t>{1, -2, 3}));
}

TEST_F(GgufMetadata, AbsentKeysAndOtherKindsAreNothing) {
  EXPECT_EQ(file().integer("absent"), std::nullopt);
  EXPECT_EQ(file().integer("test.f32"), std::nullopt);
  EXPECT_EQ(file().integer("test.bool"), std::nullopt);
  EXPECT_EQ(file().number("test.string"), std::nullopt);
  EXPECT_EQ(file().boolean("test.u8"), std::nullopt);
  EXPECT_EQ(file().string("test.u8"), std::nullopt);
  EXPECT_EQ(file().strings("test.i32s"), nullptr);
  EXPECT_EQ(file().integers("test.strings"), std::nullopt);
  EXPECT_EQ(file().integers("test.f32s"), std::nullopt);
  EXPECT_EQ(file().keys().size(), 17u);
}

// The packaged model, whose facts and weights were established by transformers and numpy.
class SmolLm2 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { file_ = GgufFile::open(LEVADA_SMOLLM2_GGUF).value().release(); }
  static void TearDownTestSuite() { delete file_; }
  static inline GgufFile* file_ = nullptr;
};

TEST_F(SmolLm2, HasItsTensorsAndMetadata) {
  std::map<std::string_view, int> count;
  for (const TensorInfo& tensor : file_->tensors()) ++count[to_string(tensor.encoding)];
  EXPECT_EQ(count, (std::map<std::string_view, int>{{"F32", 61}, {"Q4_1", 210}, {"Q8_0", 1}}));
  EXPECT_EQ(file_->find("token_embd.weight")->encoding, Encoding::kQ8_0);
  EXPECT_EQ(file_->find("token_embd.weight")->shape, (std::vector<std::int64_t>{49152, 576}));
  EXPECT_EQ(file_->find("blk.0.ffn_down.weight")->shape, (std::vector<std::int64_t>{576, 1536}));
  EXPECT_EQ(file_->string("general.architecture"), "llama");
  EXPECT_EQ(file_->integer("llama.block_count"), 30);
  EXPECT_EQ(file_->integer("llama.attention.head_count_kv"), 3);
  EXPECT_EQ(file_->string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(file_->boolean("tokenizer.ggml.add_space_prefix"), false);
  ASSERT_NE(file_->strings("tokenizer.ggml.tokens"), nullptr);
  EXPECT_EQ(file_->strings("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(file_->integers("tokenizer.ggml.token_type")->size(), 49152u);
  EXPECT_EQ(file_->strings("tokenizer.ggml.merges")->size(), 48900u);
}

// "model.layers.0.self_attn.q_proj.weight" → "blk.0.attn_q.weight"
std::string gguf_name(std::string name) {
  const std::vector<std::pair<std::string, std::string>> parts = {{"model.embed_tokens", "token_embd"},
                                                                  {"model.norm", "output_norm"},
                                                                  {"model.layers", "blk"},
                                                                  {"self_attn.q_proj", "attn_q"},
                                                                  {"self_attn.k_proj", "attn_k"},
                                                                  {"self_attn.v_proj", "attn_v"},
                                                                  {"self_attn.o_proj", "attn_output"},
                                                                  {"mlp.gate_proj", "ffn_gate"},
                                                                  {"mlp.up_proj", "ffn_up"},
                                                                  {"mlp.down_proj", "ffn_down"},
                                                                  {"post_attention_layernorm", "ffn_norm"},
                                                                  {"input_layernorm", "attn_norm"}};
  for (const auto& [from, to] : parts) {
    if (const std::size_t at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
  }
  return name;
}

TEST_F(SmolLm2, WeightsAreWhatTransformersDequantises) {
  const auto golden = nlohmann::json::parse(std::ifstream(test::vectors() / "smollm2_golden.json"));
  ASSERT_EQ(golden["weights"].size(), 12u);
  for (const auto& [name, expected] : golden["weights"].items()) {
    const TensorInfo* tensor = file_->find(gguf_name(name));
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, expected["shape"].get<std::vector<std::int64_t>>()) << name;
    const std::vector<float> values = decode_all(*tensor);
    // Attention rows are permuted in GGUF; the first row and the moments are not affected.
    const auto first4 = expected["first4"].get<std::vector<float>>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 4), first4) << name;
    double sum = 0, squares = 0;
    for (const float value : values) sum += value;
    const double mean = sum / static_cast<double>(values.size());
    for (const float value : values) squares += (value - mean) * (value - mean);
    const double std_dev = std::sqrt(squares / static_cast<double>(values.size() - 1));
    EXPECT_NEAR(mean, expected["mean"].get<double>(), 1e-6) << name;
    EXPECT_NEAR(std_dev, expected["std"].get<double>(), 1e-4 * std_dev) << name;
  }
}

class DamagedGguf : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedGguf, IsDataLossNamingFileAndNumbers) {
  const TemporaryFolder folder;
  const auto path = folder.write("m.gguf", GetParam().content);
  const auto file = GgufFile::open(path);
  expect_damage(file.status(), path, GetParam());
}

std::string header(std::uint32_t version, std::uint64_t tensors, std::uint64_t metadata) {
  return Bytes().text("GGUF").add(version).add(tensors).add(metadata).data;
}
std::string with_entry(std::uint32_t type, const std::string& value) { return Gguf().entry("k", type, value).file(); }
std::string array(std::uint32_t type, std::uint64_t count, const std::string& elements) {
  return Bytes().add(type).add(count).text(elements).data;
}
std::string with_tensor(std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset, std::size_t bytes) {
  Gguf gguf;
  gguf.tensor("w", std::move(dims), type, offset).data = std::string(bytes, '\0');
  return gguf.file();
}
std::string aligned_to(std::uint32_t type, const std::string& alignment) {
  return Gguf().entry("general.alignment", type, alignment).file();
}
std::string two_tensors(const char* first, const char* second, std::uint64_t second_offset) {
  Gguf gguf;
  gguf.tensor(first, {16}, 0, 0).tensor(second, {16}, 0, second_offset).data = std::string(256, '\0');
  return gguf.file();
}

constexpr std::uint64_t kHuge = 1ull << 62;

INSTANTIATE_TEST_SUITE_P(
    Kinds, DamagedGguf,
    ::testing::Values(
        Damage{"empty file", "", {"magic", "0 bytes"}},
        Damage{"other magic", "PK\x03\x04 something", {"'PK\\x03\\x04'", "GGUF"}},
        Damage{"version one", header(1, 0, 0), {"version 1"}}, Damage{"version four", header(4, 0, 0), {"version 4"}},
        Damage{"big endian", header(0x03000000, 0, 0), {"big-endian"}},
        Damage{"metadata count", header(3, 0, kHuge), {"4611686018427387904 metadata", "0 bytes left"}},
        Damage{"tensor count", header(3, kHuge, 0), {"4611686018427387904 tensor", "0 bytes left"}},
        Damage{"key length", header(3, 0, 1) + Bytes().add(kHuge).text("12345").data, {"key of metadata entry 0"}},
        Damage{"empty key", Gguf().entry("", 4, u32(1)).file(), {"empty key"}},
        Damage{"key twice", Gguf().entry("k", 4, u32(1)).entry("k", 4, u32(2)).file(), {"'k'", "twice"}},
        Damage{"value type", with_entry(13, u32(0)), {"'k'", "13", "12"}},
        Damage{"bool of two", with_entry(7, "\x02"), {"'k'", "0 or 1", "2"}},
        Damage{"string length", with_entry(8, Bytes().add(kHuge).data), {"'k'"}},
        Damage{"array type", with_entry(9, array(13, 1, "x")), {"'k'", "13"}},
        Damage{"array count", with_entry(9, array(4, kHuge, "xxxx")), {"'k'", "4611686018427387904", "4 bytes"}},
        Damage{"string array count", with_entry(9, array(8, kHuge, "")), {"'k'", "4611686018427387904"}},
        Damage{"string inside an array", with_entry(9, array(8, 1, Bytes().add(kHuge).data)), {"text of metadata 'k'"}},
        Damage{"array of arrays", with_entry(9, array(9, 1, array(4, 1, u32(0)))), {"'k'", "arrays of arrays"}},
        Damage{"bool array of two", with_entry(9, array(7, 1, "\x02")), {"'k'", "0 or 1"}},
        Damage{"alignment of zero", aligned_to(4, u32(0)), {"general.alignment", "power of two", "0"}},
        Damage{"alignment of 24", aligned_to(4, u32(24)), {"general.alignment", "24"}},
        Damage{
            "alignment beyond the limit", aligned_to(10, Bytes().add(kHuge).data), {"general.alignment", "2147483648"}},
        Damage{"alignment as text", aligned_to(8, Bytes().string("32").data), {"general.alignment", "integer"}},
        Damage{"five dimensions", with_tensor({1, 1, 1, 1, 1}, 0, 0, 4), {"'w'", "5 dimensions", "4"}},
        Damage{"dimension of 2^64-1", with_tensor({~0ull}, 0, 0, 4), {"'w'", "18446744073709551615"}},
        Damage{"element count overflows", with_tensor({kHuge, 4}, 0, 0, 4), {"'w'", "2^63"}},
        Damage{"byte count overflows", with_tensor({kHuge}, 0, 0, 4), {"'w'", "2^63"}},
        Damage{"unknown type", with_tensor({32}, 99, 0, 64), {"'w'", "99"}},
        Damage{"unsupported type", with_tensor({256}, 13, 0, 256), {"'w'", "13", "Q5_K"}},
        Damage{"row is part of a block", with_tensor({48, 2}, 8, 0, 102), {"'w'", "48", "Q8_0", "32"}},
        Damage{"offset not aligned", with_tensor({1}, 0, 8, 64), {"'w'", "8", "32"}},
        Damage{"offset outside", with_tensor({1}, 0, kHuge, 64), {"'w'", "4611686018427387904", "64 bytes"}},
        Damage{"end outside", with_tensor({32, 2}, 8, 0, 67), {"'w'", "68 bytes", "[2, 32]", "67 bytes"}},
        Damage{"overlap", two_tensors("a", "b", 32), {"'a'", "'b'", "0 to 64", "32 to 96"}},
        Damage{"same name twice", two_tensors("a", "a", 64), {"'a'", "twice"}}),
    [](const auto& info) {
      std::string name;
      for (const char c : info.param.what) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(GgufFile, AMissingFileIsNotFoundAndAFolderIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(GgufFile::open(folder.path() / "absent.gguf").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(GgufFile::open(folder.path()).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace levada::files
