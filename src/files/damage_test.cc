// Whatever happens to a file's bytes, opening it answers with tensors or a Status and never ends the process.
// Each damaged file lies in a heap block of exactly its size, so that the address sanitizer sees a byte read too far.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>

#include "files/gguf.h"
#include "files/gguf_parser.h"
#include "files/safetensors_header.h"
#include "files/test_files.h"

namespace levada::files {
namespace {

using test::Bytes;
using test::Gguf;
using test::safetensors;

// Parses and, where that succeeds, decodes everything. Returns whether it succeeded.
using Reader = std::function<bool(std::span<const std::byte>)>;

bool decodes(const std::vector<TensorInfo>& tensors) {
  for (const TensorInfo& tensor : tensors) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    decode_to_f32(tensor, 0, tensor.elements(), values.data());
  }
  return true;
}

bool read_safetensors(std::span<const std::byte> bytes) {
  const auto tensors = parse_safetensors(bytes, "damaged");
  return tensors.ok() && decodes(*tensors);
}

bool read_gguf(std::span<const std::byte> bytes) {
  const auto contents = parse_gguf(bytes, "damaged");
  return contents.ok() && decodes(contents->tensors);
}

bool read_index(std::span<const std::byte> bytes) { return parse_shard_index(bytes, "damaged").ok(); }

bool read_exactly(const Reader& read, std::string_view content) {
  const std::unique_ptr<std::byte[]> block(new std::byte[content.size()]);
  std::memcpy(block.get(), content.data(), content.size());
  return read({block.get(), content.size()});
}

struct Sample {
  std::string what;
  std::string content;
  Reader read;
};

void PrintTo(const Sample& sample, std::ostream* out) { *out << sample.what; }

std::string sample_safetensors() {
  return safetensors(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("h":{"dtype":"F16","shape":[4],"data_offsets":[24,32]},)"
                     R"("e":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[32,36]}})",
                     std::string(36, '\x3c'));
}

std::string sample_gguf() {
  Gguf gguf;
  gguf.entry("general.alignment", 4, Bytes().add<std::uint32_t>(32).data);
  gguf.entry("name", 8, Bytes().string("tiny").data);
  gguf.entry("eps", 6, Bytes().add(1e-5f).data)
      .entry("flag", 7, "\x01")
      .entry("wide", 10, Bytes().add(1ull << 40).data);
  gguf.entry("tokens", 9, Bytes().add<std::uint32_t>(8).add<std::uint64_t>(2).string("a").string("bc").data);
  gguf.entry("types", 9, Bytes().add<std::uint32_t>(5).add<std::uint64_t>(2).add<std::int32_t>(1).add(2).data);
  gguf.tensor("q", {32, 2}, 8, 0).tensor("w", {2, 2}, 0, 96);
  gguf.data = std::string(112, '\x2a');
  return gguf.file();
}

class Damaged : public ::testing::TestWithParam<Sample> {};

TEST_P(Damaged, TheWholeFileIsFine) { EXPECT_TRUE(read_exactly(GetParam().read, GetParam().content)); }

TEST_P(Damaged, TruncatedAnywhereItIsRefused) {
  const std::string& whole = GetParam().content;
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(read_exactly(GetParam().read, whole.substr(0, length)))
        << length << " of " << whole.size() << " bytes";
}

TEST_P(Damaged, AnyOneByteMayTakeAnyOfTheTellingValues) {
  for (std::size_t at = 0; at < GetParam().content.size(); ++at) {
    for (const char value : {'\x00', '\x01', '\x7f', '\x80', '\xff', '"', '{', '-', '9'}) {
      std::string content = GetParam().content;
      content[at] = value;
      read_exactly(GetParam().read, content);
    }
  }
}

TEST_P(Damaged, AnyEightBytesMayBecomeAHugeNumber) {
  for (std::size_t at = 0; at + 8 <= GetParam().content.size(); ++at) {
    for (const std::uint64_t value : {~0ull, 1ull << 63, (1ull << 63) - 1, 1ull << 32, (1ull << 61) + 1}) {
      std::string content = GetParam().content;
      std::memcpy(content.data() + at, &value, sizeof value);
      read_exactly(GetParam().read, content);
    }
  }
}

TEST_P(Damaged, TenThousandSeededMutationsAreSurvived) {
  std::mt19937 random(20261129);
  for (int round = 0; round < 10'000; ++round) {
    std::string content = GetParam().content;
    const unsigned changes = 1 + random() % 6;
    for (unsigned i = 0; i < changes && !content.empty(); ++i) {
      const std::size_t at = random() % content.size();
      switch (random() % 4) {
        case 0: content[at] = static_cast<char>(random()); break;
        case 1: content[at] = static_cast<char>(content[at] ^ (1 << random() % 8)); break;
        case 2: content.erase(at, random() % 9); break;
        case 3: content.insert(at, content.substr(random() % content.size(), random() % 17)); break;
      }
    }
    read_exactly(GetParam().read, content);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Damaged,
    ::testing::Values(Sample{"Safetensors", sample_safetensors(), read_safetensors},
                      Sample{"Gguf", sample_gguf(), read_gguf},
                      Sample{"Index", R"({"metadata":{"total_size":8},"weight_map":{"a":"s1.st","b":"s2.st"}})",
                             read_index}),
    [](const auto& info) { return info.param.what; });

// The same through the file system, where the mapping ends inside a page.
TEST(DamagedOnDisk, TruncatedAnywhereBothFormatsAreDataLoss) {
  const test::TemporaryFolder folder;
  const std::string gguf = sample_gguf();
  for (std::size_t length = 0; length < gguf.size(); length += 7) {
    const auto opened = GgufFile::open(folder.write("m.gguf", gguf.substr(0, length)));
    EXPECT_EQ(opened.status().code(), StatusCode::kDataLoss) << length;
  }
  const std::string tensors = sample_safetensors();
  for (std::size_t length = 0; length < tensors.size(); length += 7) {
    const auto opened = open_safetensors(folder.write("m.safetensors", tensors.substr(0, length)));
    EXPECT_EQ(opened.status().code(), StatusCode::kDataLoss) << length;
  }
}

}  // namespace
}  // namespace levada::files
