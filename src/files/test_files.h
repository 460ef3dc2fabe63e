// What: what this room's tests write files with: a byte builder, both formats' writers, a folder that goes away.
// Owner: the test.
// Thread: one.
// Invariant: writers write exactly what they are told, right or wrong, so that damage can be spelt out. Independent of
// the readers: nothing here includes their parsers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "support/temporary_folder.h"
#include "support/vectors.h"

namespace levada::files::test {

// Little-endian bytes, appended piece by piece.
struct Bytes {
  std::string data;

  template <class T>
  Bytes& add(T value) {
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& text(std::string_view characters) {
    data.append(characters);
    return *this;
  }
  // GGUF's string: a 64-bit length, then the characters.
  Bytes& string(std::string_view characters) { return add<std::uint64_t>(characters.size()).text(characters); }
  Bytes& pad_to(std::size_t alignment) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
};

// A safetensors file with this header and `data` behind it.
inline std::string safetensors(std::string_view header, std::string_view data) {
  return Bytes().add<std::uint64_t>(header.size()).text(header).text(data).data;
}

// Metadata and tensor entries of a GGUF file, each already encoded; file() puts them together.
struct Gguf {
  std::uint32_t version = 3;
  std::vector<std::string> metadata;
  std::vector<std::string> tensors;
  std::string data;
  std::size_t alignment = 32;

  Gguf& entry(std::string_view key, std::uint32_t type, std::string_view value) {
    metadata.push_back(Bytes().string(key).add(type).text(value).data);
    return *this;
  }
  // `dims` in the file's order, innermost first.
  Gguf& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset) {
    Bytes bytes;
    bytes.string(name).add(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) bytes.add(dim);
    tensors.push_back(bytes.add(type).add(offset).data);
    return *this;
  }
  std::string file() const {
    Bytes bytes;
    bytes.text("GGUF").add(version).add<std::uint64_t>(tensors.size()).add<std::uint64_t>(metadata.size());
    for (const std::string& encoded : metadata) bytes.text(encoded);
    for (const std::string& encoded : tensors) bytes.text(encoded);
    return bytes.pad_to(alignment).text(data).data;
  }
};

using levada::test::TemporaryFolder;

using levada::test::vectors;

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The float32 numbers of a raw file.
inline std::vector<float> read_floats(const std::filesystem::path& file) {
  std::vector<float> values(std::filesystem::file_size(file) / sizeof(float));
  std::ifstream(file, std::ios::binary)
      .read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

// A damaged file and what its one message must say.
struct Damage {
  std::string what;
  std::string content;
  std::vector<std::string> words;  // all stand in the message
};

inline void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.what; }

inline void expect_damage(const Status& status, const std::filesystem::path& path, const Damage& damage) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), testing::HasSubstr(path.string()));
  for (const std::string& word : damage.words) EXPECT_THAT(status.message(), testing::HasSubstr(word));
}

}  // namespace levada::files::test
