// Expected values: the PyPI package xxhash 4.1.0 (another build of the algorithm, called from Python).
#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace levada {
namespace {

// Byte i is i mod 251.
std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

struct Expected {
  std::size_t size;
  std::uint64_t seed, hash64;
  Hash128 hash128;
};

TEST(HashTest, AgreesWithAnotherBuildForEveryLengthClass) {
  // XXH3 has its own code for 0, 1-3, 4-8, 9-16, 17-128, 129-240 and more bytes.
  const Expected table[] = {
      {2, 0, 0xd6645fc3051a9457, {0x6a4a5274c1b0d3ad, 0xd6645fc3051a9457}},
      {2, 42, 0x8cec17dc4c8445ef, {0x3e20cdfb2f0aad5c, 0x8cec17dc4c8445ef}},
      {12, 0, 0x5ace6a511c10894b, {0x38f92247a7f73cc5, 0x7780eb31198f13ca}},
      {12, 42, 0x24f7f09ad46cdfc7, {0x26753de971429c92, 0x818962f6be06ee34}},
      {200, 0, 0xf42a8864feaf0703, {0xcb0395310643ba0e, 0xdd97e9af3609d9f5}},
      {200, 42, 0xc335a2de8a09a90e, {0x925d43a3b9e488f2, 0x4329506fd5cc97ea}},
      {0, 0, 0x2d06800538d394c2, {0x99aa06d3014798d8, 0x6001c324468d497f}},
      {0, 42, 0xb029411ff43d84d2, {0x16c20acd33f7af2f, 0x3c1d09e9fe249164}},
      {6, 0, 0xa6584d1d9a6ae704, {0x545f093d32b168fe, 0xa6b52f4dea3896a3}},
      {6, 42, 0xf9652e1bcb33f30c, {0x73a2bc74cb5e5c65, 0x68b7a2038c7db956}},
      {100, 0, 0x004e4f921a64bd1c, {0xda95ef16fd9566f3, 0x29b20ba5f03ec01e}},
      {100, 42, 0xa5cd98c344a5633a, {0x676d42f72934e741, 0x001ca09d280b5622}},
      {1000, 0, 0x33ef703fb2b20ed1, {0x18bf41bc8229e277, 0x33ef703fb2b20ed1}},
      {1000, 42, 0x0f580bfa20541114, {0x9148c7ff49b26d50, 0x0f580bfa20541114}},
  };
  for (const Expected& expected : table) {
    const auto bytes = pattern(expected.size);
    EXPECT_EQ(hash64(bytes, expected.seed), expected.hash64) << expected.size;
    EXPECT_EQ(hash128(bytes, expected.seed), expected.hash128) << expected.size;
  }
}

TEST(HashTest, AStreamGivesTheValueOfTheWholeWhereverItIsCut) {
  for (std::size_t size : {0, 1, 6, 200, 1000, 100'000}) {
    const auto bytes = pattern(size);
    for (std::size_t piece : {1, 7, 64, 255, 4096}) {
      Hash64Stream stream;
      for (std::size_t at = 0; at < size; at += piece)
        stream.update(std::span(bytes).subspan(at, std::min(piece, size - at)));
      EXPECT_EQ(stream.digest(), hash64(bytes)) << size << " in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace levada
