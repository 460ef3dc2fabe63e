// Golden bytes: tests/vectors/make_store.py, which wrote them from the format's page with struct and PyPI's xxhash.
#include "store/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <vector>

namespace levada::store {
namespace {

std::map<std::string, std::vector<std::byte>> golden_frames() {
  std::map<std::string, std::vector<std::byte>> frames;
  std::ifstream file(LEVADA_SOURCE_DIR "/tests/vectors/store/frames.txt");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    std::vector<std::byte>& bytes = frames[line.substr(0, colon)];
    for (std::size_t at = colon + 2; at + 1 < line.size(); at += 2)
      bytes.push_back(static_cast<std::byte>(std::stoi(line.substr(at, 2), nullptr, 16)));
  }
  return frames;
}

struct Golden {
  const char* name;
  Frame frame;
  const char* text;
};
constexpr std::uint64_t kIncarnation = 0x1122334455667788, kChecksum = 0xDEADBEEFCAFEF00D;
const Golden kGolden[] = {
    {"hello", {.op = Op::kHello, .id = 1, .text_bytes = 13}, "correct horse"},
    {"hello reply",
     {.op = Op::kHello, .reply = true, .id = 1, .first = 1 << 30, .third = 1, .incarnation = kIncarnation},
     ""},
    {"put",
     {.op = Op::kPut, .flags = 1, .id = 2, .text_bytes = 12, .body_bytes = 4096, .first = 250000, .second = kChecksum},
     "s/run:a/g1/x"},
    {"get", {.op = Op::kGet, .id = 3, .text_bytes = 12, .first = 4096, .incarnation = kIncarnation}, "s/run:a/g1/x"},
    {"get reply",
     {.op = Op::kGet,
      .reply = true,
      .id = 3,
      .body_bytes = 4096,
      .first = 4096,
      .second = kChecksum,
      .incarnation = kIncarnation},
     ""},
    {"not found",
     {.op = Op::kGet,
      .reply = true,
      .status = StatusCode::kNotFound,
      .id = 4,
      .text_bytes = 15,
      .field_bytes = 11,
      .incarnation = 9},
     "goneincarnation"},
    {"remove reply", {.op = Op::kRemove, .reply = true, .flags = 2, .id = 5, .incarnation = 9}, ""},
};

TEST(Frame, BytesAreThoseOfTheFormatsPage) {
  const auto golden = golden_frames();
  ASSERT_EQ(golden.size(), std::size(kGolden));
  for (const Golden& item : kGolden) {
    const std::vector<std::byte>& bytes = golden.at(item.name);
    const auto head = encode(item.frame);
    ASSERT_EQ(bytes.size(), kFrameBytes + std::strlen(item.text)) << item.name;
    EXPECT_EQ(std::memcmp(bytes.data(), head.data(), kFrameBytes), 0) << item.name;
    const Result<Frame> decoded = decode(std::span(bytes).first<kFrameBytes>());
    ASSERT_TRUE(decoded.ok()) << item.name << decoded.status().to_string();
    EXPECT_EQ(*decoded, item.frame) << item.name;
  }
}

TEST(Frame, AnyChangedBitOfAHeadIsNoticed) {
  const auto head = encode(kGolden[2].frame);
  for (std::size_t bit = 0; bit < kFrameBytes * 8; ++bit) {
    auto damaged = head;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_EQ(decode(damaged).status().code(), StatusCode::kDataLoss) << bit;
  }
}

TEST(Frame, AWellFormedHeadThatContradictsItselfIsRefused) {
  const auto refused = [](Frame frame) { return !decode(encode(frame)).ok(); };
  EXPECT_TRUE(refused({.op = static_cast<Op>(0)}));
  EXPECT_TRUE(refused({.op = static_cast<Op>(11)}));
  EXPECT_TRUE(refused({.op = Op::kGet, .text_bytes = kMaxTextBytes + 1}));
  EXPECT_TRUE(refused({.op = Op::kGet, .reply = true, .text_bytes = 3, .field_bytes = 4}));
  EXPECT_TRUE(refused({.op = Op::kGet, .body_bytes = 1})) << "only a put carries a body to the server";
  EXPECT_TRUE(refused({.op = Op::kPut, .reply = true, .body_bytes = 1}));
  EXPECT_TRUE(refused({.op = Op::kGet, .status = StatusCode::kNotFound}));
  EXPECT_TRUE(refused({.op = Op::kGet, .reply = true, .status = StatusCode::kNotFound, .body_bytes = 1}));
  EXPECT_FALSE(refused({.op = Op::kPut, .text_bytes = kMaxTextBytes, .body_bytes = ~std::uint64_t{0}}))
      << "how much fits is the arena's business";
}

TEST(Frame, EveryStatusTravelsWithItsMessageAndField) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    const Status status(static_cast<StatusCode>(code), "why it failed", "key");
    const ErrorText text = error_text(status);
    const Frame frame{.op = Op::kPut,
                      .reply = true,
                      .status = status.code(),
                      .text_bytes = static_cast<std::uint16_t>(text.text.size()),
                      .field_bytes = text.field_bytes};
    const Status arrived = status_of(*decode(encode(frame)), text.text);
    EXPECT_EQ(arrived.to_string(), status.to_string());
    EXPECT_EQ(arrived.field(), "key");
  }
  EXPECT_LE(error_text(Status(StatusCode::kInternal, std::string(5000, 'm'), std::string(5000, 'f'))).text.size(),
            kMaxTextBytes);
}

TEST(Frame, NoiseIsNeverAFrame) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100'000; ++round) {
    std::array<std::byte, kFrameBytes> noise;
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    if (round % 2 == 0) std::memcpy(noise.data(), "LVST\1", 5);
    ASSERT_FALSE(decode(noise).ok());
  }
}

}  // namespace
}  // namespace levada::store
