// Each kernel against its definition in double precision, and gradients against finite differences of that definition.
#include "trainkernels/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "trainkernels/table.h"

namespace levada::trainkernels {
namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Every table this processor can run.
std::vector<Table> tables() {
  std::vector<Table> all{generic_table()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(avx2_table());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    all.push_back(avx512_table());
  }
  return all;
}

TEST(Rms, IsTheRowOverItsRootMeanSquareTimesTheWeight) {
  const std::int64_t rows = 5, width = 37;
  const std::vector<float> x = random_floats(rows * width, 1, 3), w = random_floats(width, 2);
  for (const Table& table : tables()) {
    std::vector<float> y(x.size());
    table.f32.rms({rows, width, 1e-5f}, x.data(), w.data(), y.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i) sum += std::pow(x[r * width + i], 2);
      for (std::int64_t i = 0; i < width; ++i) {
        EXPECT_NEAR(y[r * width + i], w[i] * x[r * width + i] / std::sqrt(sum / width + 1e-5), 1e-5);
      }
    }
  }
}

TEST(Rms, GradientsAreThoseOfFiniteDifferences) {
  const std::int64_t rows = 3, width = 8;
  std::vector<float> x = random_floats(rows * width, 1), w = random_floats(width, 2);
  const std::vector<float> dy = random_floats(rows * width, 3);
  auto loss = [&] {
    double total = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i) sum += std::pow(double{x[r * width + i]}, 2);
      for (std::int64_t i = 0; i < width; ++i) {
        total += double{dy[r * width + i]} * w[i] * x[r * width + i] / std::sqrt(sum / width + 1e-5);
      }
    }
    return total;
  };
  auto slope = [&](float& value) {
    const float kept = value, step = 1e-3f;
    value = kept + step;
    const double above = loss();
    value = kept - step;
    const double below = loss();
    value = kept;
    return (above - below) / (2 * step);
  };
  for (const Table& table : tables()) {
    std::vector<float> dx(x.size(), 1.f), dw(width, 2.f);
    table.f32.rms_backward({rows, width, 1e-5f}, x.data(), w.data(), dy.data(), true, dx.data(), dw.data());
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(dx[i] - 1, slope(x[i]), 2e-3) << "dx accumulates";
    for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(dw[i] - 2, slope(w[i]), 2e-3) << "dw accumulates";
  }
}

TEST(CrossEntropy, NllNormArgmaxAndGradientOverALargeVocabulary) {
  const std::int64_t rows = 2, width = 5000;
  std::vector<float> logits = random_floats(rows * width, 5, 4);
  const std::vector<std::int64_t> labels{17, 4999};
  const std::vector<float> coefficient{0.5f, 0.f};
  for (const Table& table : tables()) {
    std::vector<float> work = logits, nll(rows), norm(2 * rows);
    std::vector<std::int64_t> argmax(rows);
    table.f32.cross_entropy(rows, width, work.data(), labels.data(), nll.data(), norm.data(), argmax.data());
    table.f32.cross_entropy_backward(rows, width, work.data(), labels.data(), norm.data(), coefficient.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto row = logits.begin() + r * width;
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i) sum += std::exp(double{row[i]});
      EXPECT_EQ(norm[2 * r], *std::max_element(row, row + width));
      EXPECT_NEAR(norm[2 * r + 1] * sum / std::exp(norm[2 * r]), 1, 1e-5);
      EXPECT_NEAR(nll[r], std::log(sum) - row[labels[r]], 1e-5);
      EXPECT_EQ(argmax[r], std::max_element(row, row + width) - row);
      for (std::int64_t i = 0; i < width; ++i) {
        const double p = std::exp(row[i]) / sum - (i == labels[r] ? 1 : 0);
        EXPECT_NEAR(work[r * width + i], coefficient[r] * p, 1e-6);
      }
    }
  }
}

TEST(SoftmaxTile, IsOneSoftmaxOverVisibleContextAndOwnBlock) {
  // One row of a tile that starts at key 10: keys 11 and 12 of 10..13 are seen, and slots 0 and 1 of 3.
  const std::int64_t begin = 11, end = 13, own_end = 2;
  const Tile tile{.groups = 1,
                  .per_group = 1,
                  .rows = 1,
                  .block = 3,
                  .first_key = 10,
                  .keys = 4,
                  .key_begin = &begin,
                  .key_end = &end,
                  .own_end = &own_end,
                  .scale = 0.5f};
  for (const Table& table : tables()) {
    std::vector<float> context{NAN, 1, 2, 99}, own{3, 4, NAN}, lse(1);
    const double sum = std::exp(.5) + std::exp(1) + std::exp(1.5) + std::exp(2);
    table.softmax_tile(tile, context.data(), own.data(), lse.data());
    EXPECT_NEAR(lse[0], std::log(sum), 1e-6);
    const std::vector<double> expected{0, std::exp(.5) / sum, std::exp(1) / sum, 0};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(context[i], expected[i], 1e-6);
    EXPECT_NEAR(own[0], std::exp(1.5) / sum, 1e-6);
    EXPECT_NEAR(own[1], std::exp(2) / sum, 1e-6);
    EXPECT_EQ(own[2], 0);
  }
}

TEST(Exponential, FarScoresUnderflowToZeroAndNothingOverflows) {
  const std::int64_t begin = 0, end = 2, own_end = 1;
  const Tile tile{.groups = 1,
                  .per_group = 1,
                  .rows = 1,
                  .block = 1,
                  .first_key = 0,
                  .keys = 2,
                  .key_begin = &begin,
                  .key_end = &end,
                  .own_end = &own_end,
                  .scale = 1};
  for (const Table& table : tables()) {
    std::vector<float> context{-1e30f, 1e4f}, own{1e4f}, lse(1);
    table.softmax_tile(tile, context.data(), own.data(), lse.data());
    EXPECT_EQ(context[0], 0);
    EXPECT_NEAR(context[1], 0.5, 1e-6);
    EXPECT_NEAR(own[0], 0.5, 1e-6);
  }
}

TEST(Bf16, RoundsToNearestEvenAsTheReferenceDoes) {
  // w * round(x / rms): with one column, x / rms is 1 up to eps, so y is the weight.
  const Bf16 x{0x4040}, w{0x3f81};  // 3, 1.0078125
  for (const Table& table : tables()) {
    Bf16 y{};
    table.bf16.rms({1, 1, 0.f}, &x, &w, &y);
    EXPECT_EQ(y.bits, w.bits);
    // AdamW writes weights as rounded masters: 1 + 2^-8 lies half-way and goes to even, 1 + 3 * 2^-8 too.
    std::vector<float> grad(2), master{1.00390625f, 1.01171875f}, first(2), second(2);
    std::vector<Bf16> weights(2);
    table.bf16.adamw({.learning_rate = 0}, 2, grad.data(), master.data(), first.data(), second.data(), weights.data());
    EXPECT_EQ(weights[0].bits, 0x3f80);
    EXPECT_EQ(weights[1].bits, 0x3f82);
  }
}

TEST(AdamW, FirstStepMovesByTheLearningRateAgainstTheGradientsSign) {
  for (const Table& table : tables()) {
    std::vector<float> grad{2.f, -1e-3f, 0.f}, master{1.f, 1.f, 1.f}, first(3), second(3), weights(3);
    Adam adam{.learning_rate = 0.1, .weight_decay = 0.5};
    adam.correction1 = 1 - 0.9;
    adam.correction2 = 1 - 0.999;
    table.f32.adamw(adam, 3, grad.data(), master.data(), first.data(), second.data(), weights.data());
    EXPECT_NEAR(master[0], 0.95f - 0.1f, 1e-6);
    EXPECT_NEAR(master[1], 0.95f + 0.1f, 1e-5);
    EXPECT_NEAR(master[2], 0.95f, 1e-7) << "decay alone";
    EXPECT_EQ(weights, master);
  }
}

TEST(SumOfSquares, AddsPiecesOfAnyLength) {
  const std::vector<float> values(20001, 0.5f);
  for (const Table& table : tables()) EXPECT_DOUBLE_EQ(table.sum_of_squares(values.data(), 20001), 20001 * 0.25);
}

TEST(Rope, TurnsPairsAndBack) {
  Heads heads;
  heads.rows = 3, heads.stride = 20, heads.heads = 2, heads.per_group = 1, heads.head_dim = 8;
  const std::vector<float> x = random_floats(60, 1);
  std::vector<float> cos_sin;
  for (std::int64_t r = 0; r < 3; ++r) {
    for (int i = 0; i < 4; ++i) cos_sin.push_back(std::cos(0.3f * static_cast<float>(r * 4 + i)));
    for (int i = 0; i < 4; ++i) cos_sin.push_back(std::sin(0.3f * static_cast<float>(r * 4 + i)));
  }
  heads.cos_sin = cos_sin.data();
  for (const Table& table : tables()) {
    std::vector<float> turned(48), back(60, 7.f);
    table.f32.rope(heads, x.data(), turned.data());
    const float angle = 0.3f * (2 * 4 + 1);  // row 2, head 1, pair 1
    const float a = x[2 * 20 + 8 + 1], b = x[2 * 20 + 8 + 5];
    EXPECT_NEAR(turned[(3 + 2) * 8 + 1], a * std::cos(angle) - b * std::sin(angle), 1e-6);
    EXPECT_NEAR(turned[(3 + 2) * 8 + 5], b * std::cos(angle) + a * std::sin(angle), 1e-6);
    table.f32.rope_backward(heads, turned.data(), back.data());
    for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(back[i], i % 20 < 16 ? x[i] : 7.f, 1e-6) << "and nothing else";
  }
}

TEST(Distill, IsTheCrossEntropyWithTheTeacherAndItsGradient) {
  const std::int64_t rows = 3, width = 1500;  // more than one piece of a sum
  const std::vector<float> logits = random_floats(rows * width, 1, 2), teacher = random_floats(2 * width, 2, 2);
  const std::vector<std::int64_t> of{1, 0, 1};
  const std::vector<float> coefficient{0.5f, 0, -2}, mass{0.7f, 0.2f};
  std::vector<float> norm;
  for (std::int64_t t = 0; t < 2; ++t) {
    double sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += std::exp(double{teacher[t * width + i]} - 1);
    norm.insert(norm.end(), {1.f, static_cast<float>(1 / sum)});
  }
  const Distillation d{rows, width, of.data(), norm.data(), mass.data(), coefficient.data()};
  for (const Table& table : tables()) {
    std::vector<float> changed = logits, loss(rows), overlap(rows);
    std::vector<std::int64_t> argmax(rows);
    table.f32.distill(d, changed.data(), teacher.data(), loss.data(), overlap.data(), argmax.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      const float *row = logits.data() + r * width, *wanted = teacher.data() + of[r] * width;
      double total = 0, entropy = 0, shared = 0;
      for (std::int64_t i = 0; i < width; ++i) total += std::exp(double{row[i]});
      for (std::int64_t i = 0; i < width; ++i) {
        const double p = std::exp(double{wanted[i]} - 1) * norm[2 * of[r] + 1], q = std::exp(double{row[i]}) / total;
        entropy -= p * std::log(q);
        shared += std::min(q, p * mass[of[r]]);
        EXPECT_NEAR(changed[r * width + i], coefficient[r] * (q - p), 1e-6);
      }
      EXPECT_NEAR(loss[r], entropy, 1e-5);
      EXPECT_NEAR(overlap[r], shared, 1e-6);
      EXPECT_EQ(argmax[r], std::max_element(row, row + width) - row);
    }
  }
}

}  // namespace
}  // namespace levada::trainkernels
