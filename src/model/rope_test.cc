// Frequencies of each kind of scaling, from the published definitions worked out by hand.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace levada::model {
namespace {

TEST(Rope, DefaultFrequenciesFallGeometrically) {
  const auto f = rope_frequencies({.theta = 10000}, 8);
  ASSERT_EQ(f.size(), 4u);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.1f);
  EXPECT_FLOAT_EQ(f[2], 0.01f);
  EXPECT_FLOAT_EQ(f[3], 0.001f);
}

TEST(Rope, LinearDividesEveryFrequency) {
  const auto f = rope_frequencies({.kind = RopeConfig::Kind::kLinear, .theta = 10000, .factor = 4}, 4);
  EXPECT_FLOAT_EQ(f[0], 0.25f);
  EXPECT_FLOAT_EQ(f[1], 0.0025f);
}

// Wavelength 2 pi / f. Original context 8192, factors 1 and 4: waves longer than 8192 are divided by 8, waves shorter
// than 2048 kept, those between blended.
TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeConfig rope{.kind = RopeConfig::Kind::kLlama3, .theta = 500000, .factor = 8};
  rope.original_context = 8192;
  const auto plain = rope_frequencies({.theta = 500000}, 128), scaled = rope_frequencies(rope, 128);
  int kept = 0, blended = 0, stretched = 0;
  for (std::size_t j = 0; j < plain.size(); ++j) {
    const double wavelength = 2 * 3.14159265358979 / plain[j];
    if (wavelength < 2048) {
      EXPECT_FLOAT_EQ(scaled[j], plain[j]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_FLOAT_EQ(scaled[j], plain[j] / 8);
      ++stretched;
    } else {
      const double smooth = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[j], (1 - smooth) * plain[j] / 8 + smooth * plain[j], 1e-9);
      ++blended;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(blended, 0);
  EXPECT_GT(stretched, 0);
}

TEST(Rope, YarnKeepsFastPairsAndDividesSlowOnes) {
  RopeConfig rope{.kind = RopeConfig::Kind::kYarn, .theta = 10000, .factor = 8};
  rope.original_context = 4096;
  const auto plain = rope_frequencies({.theta = 10000}, 64), scaled = rope_frequencies(rope, 64);
  // Borders: 64 ln(4096 / (2 pi rot)) / (2 ln 10000): 10.47 for 32 rotations, 22.51 for one; rounded to 10 and 23.
  EXPECT_FLOAT_EQ(scaled[10], plain[10]);
  EXPECT_LT(scaled[11], plain[11]);
  EXPECT_NEAR(scaled[11], plain[11] * (1.0 / 8 / 13 + 12.0 / 13), 1e-8);
  EXPECT_GT(scaled[22], plain[22] / 8);
  EXPECT_FLOAT_EQ(scaled[23], plain[23] / 8);
}

TEST(Rope, YarnScalesCosinesAndSines) {
  RopeConfig rope{.kind = RopeConfig::Kind::kYarn, .theta = 10000, .factor = 1};
  rope.original_context = 4096;
  rope.attention_factor = 1.5;
  std::vector<float> table(2 * 4);
  fill_cos_sin(rope, 4, 2, table.data());
  EXPECT_FLOAT_EQ(table[0], 1.5f);  // position 0: cosines, then sines
  EXPECT_FLOAT_EQ(table[2], 0.0f);
  EXPECT_FLOAT_EQ(table[4], static_cast<float>(1.5 * std::cos(1.0)));
  EXPECT_FLOAT_EQ(table[6], static_cast<float>(1.5 * std::sin(1.0)));
}

TEST(Rope, StoredDivisorsApplyPerFrequency) {
  RopeConfig rope{.theta = 10000};
  rope.divisors = {1, 8};
  const auto f = rope_frequencies(rope, 4);
  EXPECT_FLOAT_EQ(f[0], 1.0f);
  EXPECT_FLOAT_EQ(f[1], 0.01f / 8);
}

}  // namespace
}  // namespace levada::model
