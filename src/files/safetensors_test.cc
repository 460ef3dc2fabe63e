// Safetensors files and folders: what is read, and how each kind of damage is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files/layout.h"
#include "files/test_files.h"

namespace levada::files {
namespace {

using test::Bytes;
using test::Damage;
using test::safetensors;
using test::TemporaryFolder;
using ::testing::HasSubstr;

std::vector<float> decode_all(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  decode_to_f32(tensor, 0, tensor.elements(), values.data());
  return values;
}

//  header                                       data section
//  ┌ length ┐┌ JSON ──────────────────────────┐┌ w: 1 2 3 4 5 6 ┐┌ b: 7 8 ┐
TEST(Safetensors, TensorsComeBackWithNameShapeEncodingAndValues) {
  const TemporaryFolder folder;
  Bytes data;
  for (const float value : {1.f, 2.f, 3.f, 4.f, 5.f, 6.f}) data.add(value);
  data.add<std::int64_t>(7).add<std::int64_t>(8);
  const auto path =
      folder.write("m.safetensors",
                   safetensors(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],)"
                               R"("data_offsets":[0,24]},"b":{"dtype":"I64","shape":[2],"data_offsets":[24,40]}}  )",
                               data.data));
  const auto file = open_safetensors(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ((*file)->tensors().size(), 2u);
  const TensorInfo* w = (*file)->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->name, "w");
  EXPECT_EQ(w->encoding, Encoding::kF32);
  EXPECT_EQ(w->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(decode_all(*w), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(decode_all(*(*file)->find("b")), (std::vector<float>{7, 8}));
  EXPECT_EQ((*file)->find("__metadata__"), nullptr);
  EXPECT_EQ((*file)->find("W"), nullptr);
}

TEST(Safetensors, ScalarsAndEmptyTensorsAreTensors) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("m.safetensors", safetensors(R"({"s":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                                                R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[2,2]}})",
                                                Bytes().add<std::uint16_t>(0x3fc0).data));
  const auto file = open_safetensors(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(decode_all(*(*file)->find("s")), (std::vector<float>{1.5f}));
  EXPECT_EQ((*file)->find("e")->elements(), 0);
}

TEST(Safetensors, ValuesAreTheSameAfterDropResident) {
  const auto file = open_safetensors(test::vectors() / "tiny/llama/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (const TensorInfo& tensor : (*file)->tensors()) {
    const std::vector<float> before = decode_all(tensor);
    (*file)->drop_resident(tensor);
    EXPECT_EQ(decode_all(tensor), before) << tensor.name;
  }
}

TEST(Safetensors, FilesWrittenByHuggingFaceOpenAndCoverTheirWholeDataSection) {
  for (const char* model : {"llama", "qwen3"}) {
    for (const char* name : {"model.safetensors", "golden.safetensors"}) {
      const auto path = test::vectors() / "tiny" / model / name;
      const auto file = open_safetensors(path);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      std::size_t bytes = 0;
      for (const TensorInfo& tensor : (*file)->tensors()) bytes += tensor.bytes.size();
      EXPECT_GT(bytes, std::filesystem::file_size(path) * 3 / 4) << path;
    }
  }
  const auto folder = open_safetensors_folder(test::vectors() / "tiny/qwen3");
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  const TensorInfo* embedding = (*folder)->find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->encoding, Encoding::kF32);
  EXPECT_EQ(embedding->shape.size(), 2u);
}

class DamagedSafetensors : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedSafetensors, IsDataLossNamingFileAndNumbers) {
  const TemporaryFolder folder;
  const auto path = folder.write("m.safetensors", GetParam().content);
  const auto file = open_safetensors(path);
  expect_damage(file.status(), path, GetParam());
}

std::string one(std::string_view entry, std::size_t bytes) {
  return safetensors("{\"w\":" + std::string(entry) + "}", std::string(bytes, '\0'));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DamagedSafetensors,
    ::testing::Values(
        Damage{"empty file", "", {"0 bytes"}}, Damage{"shorter than the length", "1234567", {"7 bytes"}},
        Damage{"length beyond the file", Bytes().add<std::uint64_t>(100).text("{}").data, {"100", "2 bytes left"}},
        Damage{"length above the limit", Bytes().add<std::uint64_t>(100'000'001).data, {"100000001", "100000000"}},
        Damage{"length of 2^64-1", Bytes().add<std::uint64_t>(~0ull).text("{}").data, {"18446744073709551615"}},
        Damage{"no JSON", safetensors("{\"w\":", ""), {"JSON"}}, Damage{"empty header", safetensors("", ""), {"JSON"}},
        Damage{"header is an array", safetensors("[1]", ""), {"must be an object"}},
        Damage{"invalid UTF-8", safetensors("{\"\xff\":{}}", ""), {"JSON"}},
        Damage{"nested too deep", safetensors(std::string(5000, '['), ""), {"JSON"}},
        Damage{"entry is no object", one("7", 0), {"'w'", "object"}},
        Damage{"no dtype", one(R"({"shape":[1],"data_offsets":[0,4]})", 4), {"'w'", "'dtype'"}},
        Damage{"unsupported dtype", one(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})", 8), {"'w'", "'F64'"}},
        Damage{"quantised dtype", one(R"({"dtype":"Q8_0","shape":[32],"data_offsets":[0,34]})", 34), {"'w'", "'Q8_0'"}},
        Damage{"no shape", one(R"({"dtype":"F32","data_offsets":[0,4]})", 4), {"'w'", "'shape'"}},
        Damage{
            "negative dimension", one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4), {"'w'", "'shape'"}},
        Damage{"fractional dimension", one(R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})", 4), {"'shape'"}},
        Damage{
            "dimension of 2^64", one(R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]})", 4), {}},
        Damage{"three offsets", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})", 4), {"2 numbers", "3"}},
        Damage{"offsets reversed", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4), {"4 to 0"}},
        Damage{
            "end outside", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 4), {"'w'", "0 to 8", "4 bytes"}},
        Damage{"offsets of 2^63-1",
               one(R"({"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]})", 4),
               {"9223372036854775807", "4 bytes"}},
        Damage{"fewer bytes than the shape",
               one(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,20]})", 20),
               {"'w'", "[2, 3]", "24 bytes", "20"}},
        Damage{"element count overflows",
               one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0),
               {"'w'", "2^63"}},
        Damage{"overflow hidden behind a zero",
               one(R"({"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})", 0),
               {"'w'", "2^63"}},
        Damage{"byte count overflows",
               one(R"({"dtype":"I64","shape":[4611686018427387904],"data_offsets":[0,0]})", 0),
               {"'w'", "2^63"}},
        Damage{"same name twice",
               safetensors(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                           "ab"),
               {"'w'", "twice", "0", "1"}},
        Damage{"overlap",
               safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"U8","shape":[3],"data_offsets":[3,6]}})",
                           "abcdef"),
               {"'a'", "'b'", "0 to 4", "3 to 6"}},
        Damage{"hole",
               safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                           "abcdef"),
               {"4 bytes", "6"}},
        Damage{
            "bytes behind the last tensor", one(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})", 9), {"1", "9"}}),
    [](const auto& info) {
      std::string name;
      for (const char c : info.param.what) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(Safetensors, NamesFromTheFileAreShownEscapedAndCut) {
  EXPECT_EQ(in_quotes("a\n\x1b[0m"), "'a\\x0a\\x1b[0m'");
  EXPECT_LT(in_quotes(std::string(1 << 20, 'x')).size(), 200u);
}

TEST(Safetensors, AMissingFileIsNotFoundAndAFolderIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(open_safetensors(folder.path() / "absent.safetensors").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(open_safetensors(folder.path()).status().code(), StatusCode::kInvalidArgument);
}

//  model.safetensors.index.json:  a → s1, b → s2
//  s1: a, extra        s2: b
class Shards : public ::testing::Test {
 protected:
  Shards() {
    folder_.write("s1.safetensors", safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                R"("extra":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                "\x05\x06"));
    folder_.write("s2.safetensors", one_byte("b", '\x07'));
  }
  static std::string one_byte(const std::string& name, char value) {
    return safetensors("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", std::string(1, value));
  }
  void write_index(const std::string& weight_map) {
    folder_.write("model.safetensors.index.json", R"({"metadata":{"total_size":2},"weight_map":)" + weight_map + "}");
  }
  Status open() { return open_safetensors_folder(folder_.path()).status(); }

  TemporaryFolder folder_;
};

TEST_F(Shards, EveryIndexedWeightComesFromItsShard) {
  write_index(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  const auto source = open_safetensors_folder(folder_.path());
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_EQ((*source)->tensors().size(), 2u);
  EXPECT_EQ(decode_all(*(*source)->find("a")), (std::vector<float>{5}));
  EXPECT_EQ(decode_all(*(*source)->find("b")), (std::vector<float>{7}));
  EXPECT_EQ((*source)->find("extra"), nullptr);
  (*source)->drop_resident(*(*source)->find("b"));
  EXPECT_EQ(decode_all(*(*source)->find("b")), (std::vector<float>{7}));
}

TEST_F(Shards, ASingleFileGoesBeforeAnIndex) {
  write_index(R"({"a":"s1.safetensors"})");
  folder_.write("model.safetensors", one_byte("whole", '\x01'));
  const auto source = open_safetensors_folder(folder_.path());
  ASSERT_TRUE(source.ok()) << source.status().to_string();
  EXPECT_NE((*source)->find("whole"), nullptr);
  EXPECT_EQ((*source)->find("a"), nullptr);
}

TEST_F(Shards, AMissingShardIsNotFoundNamingShardAndWeight) {
  write_index(R"({"a":"s1.safetensors","c":"s3.safetensors"})");
  EXPECT_EQ(open().code(), StatusCode::kNotFound);
  EXPECT_THAT(open().message(), ::testing::AllOf(HasSubstr("s3.safetensors"), HasSubstr("'c'")));
}

TEST_F(Shards, AWeightAbsentFromItsShardIsDataLossNamingBoth) {
  write_index(R"({"a":"s2.safetensors"})");
  EXPECT_EQ(open().code(), StatusCode::kDataLoss);
  EXPECT_THAT(open().message(), ::testing::AllOf(HasSubstr("'a'"), HasSubstr("'s2.safetensors'")));
}

TEST_F(Shards, ADamagedShardIsNamed) {
  folder_.write("s2.safetensors", "damaged!!");
  write_index(R"({"b":"s2.safetensors"})");
  EXPECT_EQ(open().code(), StatusCode::kDataLoss);
  EXPECT_THAT(open().message(), HasSubstr("s2.safetensors"));
}

TEST_F(Shards, ShardNamesThatLeaveTheFolderAreRefused) {
  for (const char* name :
       {"../s1.safetensors", "/etc/passwd", "sub/s1.safetensors", "..", ".", "", "a\\\\b", "s1\\u0000"}) {
    write_index(R"({"a":")" + std::string(name) + "\"}");
    EXPECT_EQ(open().code(), StatusCode::kDataLoss) << name;
    EXPECT_THAT(open().message(), HasSubstr("plain name")) << name;
  }
}

TEST_F(Shards, ADamagedIndexIsDataLoss) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "JSON"},
      {"[]", "object"},
      {"{}", "weight_map"},
      {R"({"weight_map":[]})", "weight_map"},
      {R"({"weight_map":{"a":1}})", "'a'"},
      {R"({"weight_map":{"a":"s1.safetensors","a":"s2.safetensors"}})", "twice"},
  };
  for (const auto& [index, word] : cases) {
    folder_.write("model.safetensors.index.json", index);
    EXPECT_EQ(open().code(), StatusCode::kDataLoss) << index;
    EXPECT_THAT(open().message(), ::testing::AllOf(HasSubstr("index.json"), HasSubstr(word)));
  }
}

TEST(SafetensorsFolder, WithoutACheckpointIsNotFound) {
  const TemporaryFolder folder;
  EXPECT_EQ(open_safetensors_folder(folder.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(open_safetensors_folder(folder.path() / "absent").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace levada::files
