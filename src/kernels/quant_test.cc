// The kernels on GGUF's blocks against the published formulas, on random blocks.
#include "kernels/quant.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/ref/ref_quant.h"
#include "kernels/test_tensors.h"

namespace levada::kernels {
namespace {

using enum QuantFormat;
constexpr QuantFormat kFormats[] = {kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K};

// Where the halves of a block stand: they become numbers from 2^-8 to 2^-7, either sign; all other bits are random.
std::vector<std::int64_t> halves_of(QuantFormat format) {
  if (format == kQ6_K) return {208};
  return format == kQ4_1 || format == kQ4_K ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{0};
}

std::vector<std::byte> random_row(std::mt19937_64& bits, QuantFormat format, std::int64_t k) {
  const std::int64_t block = block_bytes(format);
  std::vector<std::byte> row(static_cast<std::size_t>(k / block_elements(format) * block));
  for (std::byte& b : row) b = static_cast<std::byte>(bits());
  for (std::size_t at = 0; at < row.size(); at += static_cast<std::size_t>(block)) {
    for (const std::int64_t half : halves_of(format)) {
      const auto value = static_cast<std::uint16_t>(0x1c00u | (bits() & 0x83ffu));
      std::memcpy(row.data() + at + half, &value, sizeof value);
    }
  }
  return row;
}

QuantMatrix random_matrix(std::uint64_t seed, QuantFormat format, std::int64_t n, std::int64_t k) {
  std::mt19937_64 bits(seed);
  QuantMatrix matrix(format, n, k);
  for (std::int64_t row = 0; row < n; ++row) matrix.set_row(row, random_row(bits, format, k).data());
  return matrix;
}

// Activations that two bytes hold exactly: whole numbers, 127 the largest of every 32.
Tensor exact_activations(std::uint64_t seed, std::int64_t rows, std::int64_t k) {
  std::mt19937_64 bits(seed);
  Tensor x(DType::kF32, {rows, k});
  for (std::int64_t i = 0; i < rows * k; ++i) {
    const int whole = static_cast<int>(bits() % 255) - 127;
    x.set(static_cast<std::size_t>(i), static_cast<float>(i % 32 == 7 ? 127 : whole));
  }
  return x;
}

// sum over k of |w[n, k]| * (largest magnitude of x in k's block of 32), for every output.
std::vector<float> weighed_magnitudes(const Tensor& x, const QuantMatrix& w) {
  std::vector<std::byte> blocks(static_cast<std::size_t>(w.row_bytes()));
  std::vector<float> weights(static_cast<std::size_t>(w.columns())), out;
  const std::vector<float> numbers = values(x);
  for (std::int64_t r = 0; r < x.view().shape[0]; ++r) {
    for (std::int64_t n = 0; n < w.rows(); ++n) {
      w.row(n, blocks.data());
      dequantize_row(w.format(), blocks.data(), w.columns(), weights.data());
      float sum = 0;
      for (std::int64_t k = 0; k < w.columns(); k += 32) {
        float largest = 0, magnitude = 0;
        for (std::int64_t i = k; i < k + 32; ++i) {
          largest = std::max(largest, std::abs(numbers[static_cast<std::size_t>(r * w.columns() + i)]));
          magnitude += std::abs(weights[static_cast<std::size_t>(i)]);
        }
        sum += largest * magnitude;
      }
      out.push_back(sum);
    }
  }
  return out;
}

TEST(QuantMatrix, GivesARowsBytesBackAsTheyCame) {
  for (const QuantFormat format : kFormats) {
    std::mt19937_64 bits(5);
    QuantMatrix matrix(format, 37, 512);
    std::vector<std::vector<std::byte>> rows;
    for (std::int64_t r = 0; r < 37; ++r) {
      rows.push_back(random_row(bits, format, 512));
      matrix.set_row(r, rows.back().data());
    }
    std::vector<std::byte> back(static_cast<std::size_t>(matrix.row_bytes()));
    for (std::int64_t r = 0; r < 37; ++r) {
      matrix.row(r, back.data());
      ASSERT_EQ(back, rows[static_cast<std::size_t>(r)]) << to_string(format) << " row " << r;
    }
  }
}

struct QuantTest : ::testing::TestWithParam<std::string> {
  ThreadPool pool{2};
  std::unique_ptr<Ops> ops = make_cpu_ops(pool, GetParam());
  std::unique_ptr<Ops> ref = make_cpu_ops(pool, "ref");
};
INSTANTIATE_TEST_SUITE_P(Tables, QuantTest, ::testing::ValuesIn(tuned_tables()), [](const auto& i) { return i.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(QuantTest);

TEST_P(QuantTest, EqualsThePublishedFormulaWhereTwoBytesHoldTheActivations) {
  std::mt19937 shapes(1);
  for (const QuantFormat format : kFormats) {
    for (int trial = 0; trial < 12; ++trial) {
      const std::int64_t rows = 1 + shapes() % 19, n = 1 + shapes() % 70;
      const std::int64_t k = block_elements(format) * (1 + shapes() % 5);
      const QuantMatrix w = random_matrix(shapes(), format, n, k);
      const Tensor x = exact_activations(shapes(), rows, k);
      for (const bool accumulate : {false, true}) {
        const Tensor want = Tensor::random(3, DType::kF32, {rows, n}, 7), got = want;
        ref->linear(x, w, want, accumulate);
        ops->linear(x, w, got, accumulate);
        const std::vector<float> scale = weighed_magnitudes(x, w), a = values(got), b = values(want);
        for (std::size_t i = 0; i < a.size(); ++i) {
          ASSERT_NEAR(a[i], b[i], 1e-6 * (scale[i] + 1)) << to_string(format) << " " << rows << " " << n << " " << k;
        }
      }
    }
  }
}

TEST_P(QuantTest, RoundingActivationsCostsAtMostHalfAStepOfEach) {
  for (const QuantFormat format : kFormats) {
    const QuantMatrix w = random_matrix(9, format, 50, 768);
    const Tensor x = Tensor::random(4, DType::kF32, {5, 768}), want(DType::kF32, {5, 50}), got(DType::kF32, {5, 50});
    ref->linear(x, w, want, false);
    ops->linear(x, w, got, false);
    const std::vector<float> bound = weighed_magnitudes(x, w), a = values(got), b = values(want);
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], bound[i] * (1.0 / 64516 + 1e-6)) << to_string(format);
  }
}

TEST_P(QuantTest, RoughProductsCostAtMostHalfAStepOfOneByteAndDependOnTheirRowAlone) {
  ThreadPool three(3);
  const auto on_three = make_cpu_ops(three, GetParam()), narrow = make_cpu_ops(pool, "avx2");
  const QuantMatrix w = random_matrix(9, kQ8_0, 50, 768);
  const Tensor x = Tensor::random(4, DType::kF32, {19, 768}), want(DType::kF32, {19, 50}), got(DType::kF32, {19, 50});
  ref->linear(x, w, want, false);
  ops->linear_rough(x, w, got, false);
  const std::vector<float> bound = weighed_magnitudes(x, w), a = values(got), b = values(want);
  double error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], bound[i] * (1.0 / 253 + 1e-6));
    error += std::abs(a[i] - b[i]);
  }
  EXPECT_GT(error, 0) << "it is the rough way";
  for (const std::int64_t rows : {1, 2, 5, 8, 9, 16}) {
    const Tensor some(DType::kF32, {rows, 50});
    (rows % 2 == 0 ? ops : rows == 5 ? narrow : on_three)->linear_rough(x.rows(3, rows), w, some, false);
    ASSERT_EQ(values(some), values(got.rows(3, rows))) << rows << " rows";
  }
}

TEST_P(QuantTest, OtherFormsThanQ8HaveNoRougherWay) {
  const QuantMatrix w = random_matrix(9, kQ4_1, 50, 768);
  const Tensor x = Tensor::random(4, DType::kF32, {3, 768}), want(DType::kF32, {3, 50}), got(DType::kF32, {3, 50});
  ops->linear(x, w, want, false);
  ops->linear_rough(x, w, got, false);
  EXPECT_EQ(values(got), values(want));
}

TEST_P(QuantTest, ARowIsTheSameBitsAloneTogetherAndOnAnyNumberOfThreads) {
  ThreadPool three(3);
  const auto on_three = make_cpu_ops(three, GetParam());
  for (const QuantFormat format : kFormats) {
    const QuantMatrix w = random_matrix(6, format, 83, 512);
    const Tensor x = Tensor::random(1, DType::kF32, {40, 512}, 3), alone(DType::kF32, {40, 83});
    for (std::int64_t r = 0; r < 40; ++r) ops->linear(x.rows(r, 1), w, alone.rows(r, 1), false);
    for (const std::int64_t rows : {2, 3, 4, 5, 7, 8, 9, 17, 40}) {
      const Tensor together(DType::kF32, {rows, 83});
      (rows % 2 == 0 ? ops : on_three)->linear(x.rows(0, rows), w, together, false);
      ASSERT_EQ(values(together), values(alone.rows(0, rows))) << to_string(format) << " " << rows << " rows";
    }
  }
}

TEST_P(QuantTest, EveryInstructionSetGivesTheSameBits) {
  const auto narrow = make_cpu_ops(pool, "avx2");
  for (const QuantFormat format : kFormats) {
    const QuantMatrix w = random_matrix(7, format, 45, 512);
    for (const std::int64_t rows : {9, 16, 37}) {
      const Tensor x = Tensor::random(2, DType::kF32, {rows, 512});
      const Tensor want = Tensor::random(3, DType::kF32, {rows, 45}, 3), got = want;
      narrow->linear(x, w, want, rows == 37);
      ops->linear(x, w, got, rows == 37);
      EXPECT_EQ(values(got), values(want)) << to_string(format) << " " << rows << " rows";
    }
  }
}

TEST_P(QuantTest, ZeroAndTinyActivationsGiveZeroAndNanStaysNan) {
  const QuantMatrix w = random_matrix(8, kQ4_1, 16, 32);
  Tensor x(DType::kF32, {3, 32}), out(DType::kF32, {3, 16});
  for (std::size_t i = 32; i < 64; ++i) x.set(i, 1e-40f);
  for (std::size_t i = 64; i < 96; ++i) x.set(i, i == 70 ? std::nanf("") : 1.0f);
  ops->linear(x, w, out, false);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(values(out)[i], 0);
  for (std::size_t i = 32; i < 48; ++i) EXPECT_TRUE(std::isnan(values(out)[i]));
}

TEST_P(QuantTest, EmbedGivesTheRowsOfTheTable) {
  for (const QuantFormat format : kFormats) {
    std::mt19937_64 bits(11);
    QuantMatrix table(format, 20, 256);
    std::vector<std::vector<std::byte>> rows;
    for (std::int64_t r = 0; r < 20; ++r) table.set_row(r, rows.emplace_back(random_row(bits, format, 256)).data());
    const Tensor out(DType::kF32, {3, 256});
    const std::vector<std::int32_t> ids = {19, 0, 7};
    ops->embed(table, ids, out);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::vector<float> want(256);
      dequantize_row(format, rows[static_cast<std::size_t>(ids[i])].data(), 256, want.data());
      EXPECT_EQ(values(out.rows(static_cast<std::int64_t>(i), 1)), want);
    }
  }
}

}  // namespace
}  // namespace levada::kernels
