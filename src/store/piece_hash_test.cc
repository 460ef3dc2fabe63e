#include "store/piece_hash.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "base/hash.h"

namespace levada::store {
namespace {

std::vector<std::byte> golden_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  return bytes;
}

TEST(PieceHashTest, EqualsPythonXxhashOverTheSamePieces) {
  std::ifstream file(LEVADA_SOURCE_DIR "/tests/vectors/store/pieces.txt");
  std::size_t size = 0, lines = 0;
  std::uint64_t value = 0;
  for (; file >> std::dec >> size >> std::hex >> value; ++lines)
    EXPECT_EQ(piece_hash(golden_bytes(size)), value) << size << " bytes";
  EXPECT_EQ(lines, 18u);
}

TEST(PieceHashTest, OfOnePieceItIsTheOrdinaryChecksum) {
  for (std::size_t size : {0, 1, 512, 16384, 32767})
    EXPECT_EQ(piece_hash(golden_bytes(size)), hash64(golden_bytes(size)));
  EXPECT_NE(piece_hash(golden_bytes(32768)), hash64(golden_bytes(32768)));
}

}  // namespace
}  // namespace levada::store
