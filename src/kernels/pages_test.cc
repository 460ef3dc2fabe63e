// The plain twins of the page copies: what is packed, in which order, and what comes back.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/ref/ref_pages.h"

namespace levada::kernels {
namespace {

// Two planes: two layers with pages of 2 bytes, eight bytes apart; one layer with pages of 3. Bytes count upwards.
struct RefPages : testing::Test {
  RefPages() {
    std::iota(first.begin(), first.end(), std::uint8_t{0});
    std::iota(second.begin(), second.end(), std::uint8_t{100});
  }
  std::vector<std::uint8_t> first = std::vector<std::uint8_t>(16), second = std::vector<std::uint8_t>(9);
  std::vector<PagePlane> planes{{first.data(), 2, 3, 2, 8}, {second.data(), 1, 3, 3, 9}};
};

TEST_F(RefPages, PackedIsPageAfterPageThenPlanesThenLayers) {
  ASSERT_EQ(packed_page_bytes(planes), 7);
  std::vector<std::uint8_t> packed(14);
  ref_gather_pages(planes, std::vector<std::int32_t>{2, 0}, packed.data());
  EXPECT_EQ(packed, (std::vector<std::uint8_t>{4, 5, 12, 13, 106, 107, 108, 0, 1, 8, 9, 100, 101, 102}));
}

TEST_F(RefPages, APageOutsideIsZerosAndIsNeverWritten) {
  std::vector<std::uint8_t> packed(14, 77);
  ref_gather_pages(planes, std::vector<std::int32_t>{-1, 3}, packed.data());
  EXPECT_EQ(packed, std::vector<std::uint8_t>(14));
  const std::vector<std::uint8_t> before = first;
  ref_scatter_pages(planes, std::vector<std::int32_t>{-1, 3}, packed.data());
  EXPECT_EQ(first, before);
}

TEST_F(RefPages, WhatWasGatheredIsScatteredIntoOtherPages) {
  std::vector<std::uint8_t> packed(7);
  ref_gather_pages(planes, std::vector<std::int32_t>{2}, packed.data());
  ref_scatter_pages(planes, std::vector<std::int32_t>{0}, packed.data());
  EXPECT_EQ(first, (std::vector<std::uint8_t>{4, 5, 2, 3, 4, 5, 6, 7, 12, 13, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(second, (std::vector<std::uint8_t>{106, 107, 108, 103, 104, 105, 106, 107, 108}));
}

}  // namespace
}  // namespace levada::kernels
