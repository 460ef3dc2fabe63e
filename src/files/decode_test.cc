// Every encoding decodes to what an independent reference says (tests/vectors/gguf_quants, made by the PyPI packages
// gguf and ml_dtypes), and F16 to what IEEE 754 says for each of its 65,536 values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "files/gguf.h"
#include "files/test_files.h"

namespace levada::files {
namespace {

using test::Bytes;

std::vector<float> decode_all(const TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  decode_to_f32(tensor, 0, tensor.elements(), values.data());
  return values;
}

TensorInfo tensor_over(const std::string& bytes, Encoding encoding, std::int64_t elements) {
  return {.name = "t", .encoding = encoding, .shape = {elements}, .bytes = test::as_bytes(bytes)};
}

class AgainstReference : public ::testing::TestWithParam<Encoding> {};

TEST_P(AgainstReference, EveryElementIsBitEqual) {
  const auto file = GgufFile::open(test::vectors() / "gguf_quants/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const std::string name(to_string(GetParam()));
  const TensorInfo* tensor = (*file)->find(name);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->encoding, GetParam());
  EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{2, 512}));
  EXPECT_EQ(decode_all(*tensor), test::read_floats(test::vectors() / "gguf_quants" / (name + ".f32")));
}

TEST_P(AgainstReference, AnyRunOfWholeBlocksEqualsThatPartOfTheWhole) {
  const auto file = GgufFile::open(test::vectors() / "gguf_quants/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const TensorInfo& tensor = *(*file)->find(to_string(GetParam()));
  const std::vector<float> whole = decode_all(tensor);
  const std::int64_t block = block_elements(tensor.encoding);
  for (std::int64_t first = 0; first < tensor.elements(); first += block * (block == 1 ? 37 : 1)) {
    std::vector<float> part(static_cast<std::size_t>(tensor.elements() - first));
    decode_to_f32(tensor, first, tensor.elements() - first, part.data());
    ASSERT_EQ(part, std::vector<float>(whole.begin() + first, whole.end())) << "from element " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, AgainstReference,
                         ::testing::Values(Encoding::kF32, Encoding::kF16, Encoding::kBF16, Encoding::kQ8_0,
                                           Encoding::kQ4_0, Encoding::kQ4_1, Encoding::kQ4_K, Encoding::kQ6_K),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Decode, F16FollowsIeee754ForEveryBitPattern) {
  std::vector<std::uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), std::uint16_t{0});
  const std::string bytes(reinterpret_cast<const char*>(halves.data()), halves.size() * 2);
  const std::vector<float> values = decode_all(tensor_over(bytes, Encoding::kF16, 65536));
  for (int i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31;
    const float fraction = static_cast<float>(i & 1023) / 1024;
    const float sign = i < 32768 ? 1.0f : -1.0f;
    const float value = values[static_cast<std::size_t>(i)];
    if (exponent == 31 && fraction > 0) {
      ASSERT_TRUE(std::isnan(value)) << i;
      continue;
    }
    const float magnitude = exponent == 31  ? std::numeric_limits<float>::infinity()
                            : exponent == 0 ? std::ldexp(fraction, -14)
                                            : std::ldexp(1 + fraction, exponent - 15);
    ASSERT_EQ(value, sign * magnitude) << i;
    ASSERT_EQ(std::signbit(value), i >= 32768) << i;
  }
}

TEST(Decode, F8E4M3AgreesWithMlDtypesForEveryBitPattern) {
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  const std::vector<float> values = decode_all(tensor_over(bytes, Encoding::kF8E4M3, 256));
  const std::vector<float> expected = test::read_floats(test::vectors() / "gguf_quants/F8_E4M3.f32");
  ASSERT_EQ(expected.size(), 256u);
  for (std::size_t i = 0; i < 256; ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    } else {
      EXPECT_EQ(values[i], expected[i]) << i;
    }
  }
}

TEST(Decode, IntegersKeepTheirValueAndSign) {
  const std::string wide = Bytes().add<std::int64_t>(-3).add<std::int64_t>(1LL << 40).data;
  EXPECT_EQ(decode_all(tensor_over(wide, Encoding::kI64, 2)), (std::vector<float>{-3, 1099511627776.0f}));
  const std::string narrow = Bytes().add<std::int32_t>(-7).add<std::int32_t>(65536).data;
  EXPECT_EQ(decode_all(tensor_over(narrow, Encoding::kI32, 2)), (std::vector<float>{-7, 65536}));
  EXPECT_EQ(decode_all(tensor_over(std::string("\x00\xff", 2), Encoding::kU8, 2)), (std::vector<float>{0, 255}));
}

TEST(Decode, UnalignedBytesDecodeLikeAlignedOnes) {
  const std::string bytes = Bytes().text("x").add(1.5f).add(-2.0f).data;
  const TensorInfo tensor{
      .name = "t", .encoding = Encoding::kF32, .shape = {2}, .bytes = test::as_bytes(bytes).subspan(1)};
  EXPECT_EQ(decode_all(tensor), (std::vector<float>{1.5f, -2.0f}));
}

TEST(Decode, NothingOfAnEmptyTensorIsFine) { EXPECT_TRUE(decode_all(tensor_over("", Encoding::kQ4_K, 0)).empty()); }

using DecodeDeathTest = ::testing::Test;

TEST(DecodeDeathTest, PartOfABlockOrElementsOutsideTheTensorEndTheProcess) {
  const std::string bytes(2 * 34, '\0');
  const TensorInfo tensor = tensor_over(bytes, Encoding::kQ8_0, 64);
  std::vector<float> out(128);
  EXPECT_DEATH(decode_to_f32(tensor, 16, 32, out.data()), "part of a block");
  EXPECT_DEATH(decode_to_f32(tensor, 0, 31, out.data()), "part of a block");
  EXPECT_DEATH(decode_to_f32(tensor, 32, 64, out.data()), "outside the tensor");
  EXPECT_DEATH(decode_to_f32(tensor, -32, 32, out.data()), "outside the tensor");
}

}  // namespace
}  // namespace levada::files
