#include "store/stream_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/hash.h"

namespace levada::store {
namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + (i >> 8));
  return bytes;
}

TEST(StreamCopy, EveryWayCopiesJustItsBytesWhateverTheAlignment) {
  const auto from = pattern(5000);
  for (const char* name : {"avx512", "avx2", "plain"}) {
    const CopyFunction copy = copy_function(name);
    if (copy == nullptr) continue;  // this processor lacks it
    for (std::size_t start : {0, 1, 63, 64}) {
      for (std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 4096, 4500}) {
        std::vector<std::byte> to(5000, std::byte{0xEE});
        copy(to.data() + start, from.data() + 3, bytes);
        EXPECT_EQ(std::memcmp(to.data() + start, from.data() + 3, bytes), 0) << name << " " << start << " " << bytes;
        for (std::size_t i = 0; i < to.size(); ++i) {
          if (i < start || i >= start + bytes) {
            ASSERT_EQ(to[i], std::byte{0xEE}) << name << " wrote beside its bytes";
          }
        }
      }
    }
  }
  EXPECT_NE(copy_function("plain"), nullptr);
  EXPECT_EQ(copy_function("mmx"), nullptr);
}

TEST(StreamCopy, HashedCopyGivesTheHashOfTheWholeBelowAndAboveTheThreshold) {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{100}, kStreamFromBytes - 1, kStreamFromBytes,
                            kStreamFromBytes + 1, 3 * kStreamFromBytes + 777}) {
    const auto from = pattern(bytes);
    std::vector<std::byte> to(bytes);
    EXPECT_EQ(stream_copy_hashed(to, from), hash64(from)) << bytes;
    EXPECT_EQ(to, from);
  }
}

}  // namespace
}  // namespace levada::store
