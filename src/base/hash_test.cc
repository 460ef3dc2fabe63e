// Expected values: the PyPI package xxhash 4.1.0 (another build of the algorithm, called from Python).
#include "base/hash.h"

#include <gtest/gtest.h>

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
  const Expected table[] = {
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

}  // namespace
}  // namespace levada
