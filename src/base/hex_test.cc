#include "base/hex.h"

#include <gtest/gtest.h>

namespace levada {
namespace {

TEST(Hex, ANumberIsAlwaysSixteenDigits) {
  EXPECT_EQ(hex64(0), "0000000000000000");
  EXPECT_EQ(hex64(0x0123456789ABCDEF), "0123456789abcdef");
  EXPECT_EQ(parse_hex64("ffffffffffffffff").value(), ~std::uint64_t{0});
  EXPECT_EQ(parse_hex64("0123456789ABCDEF").value(), 0x0123456789ABCDEF);
}

TEST(Hex, EverythingElseIsRefusedAndNamesTheField) {
  for (const char* bad : {"", "0", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeg", "-123456789abcdef",
                          "0x23456789abcdef", " 123456789abcdef"}) {
    const auto parsed = parse_hex64(bad, "checksum");
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(parsed.status().field(), "checksum");
  }
}

}  // namespace
}  // namespace levada
