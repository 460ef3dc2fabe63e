// Every tuned table against the plain twin, on sizes that fit no vector and no tile.
#include "kernels/ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "kernels/test_tensors.h"

namespace levada::kernels {
namespace {

struct OpsTest : ::testing::TestWithParam<std::string> {
  ThreadPool pool{2};
  std::unique_ptr<Ops> ops = make_cpu_ops(pool, GetParam());
  std::unique_ptr<Ops> ref = make_cpu_ops(pool, "ref");
};
INSTANTIATE_TEST_SUITE_P(Tables, OpsTest, ::testing::ValuesIn(tuned_tables()), [](const auto& i) { return i.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpsTest);

// What the twin is given for a linear of `ops` with such weights: x as that table rounds it (see Ops::linear).
Tensor as_multiplied(const Ops& ops, const Tensor& x, DType weights) {
  Tensor rounded = x;
  if (ops.name() != "avx512_bf16" || weights != DType::kBF16) return rounded;
  for (std::size_t i = 0; i < x.bytes().size() / sizeof(float); ++i) {
    rounded.set(i, to_float(to_bf16(x.view().as<float>()[i])));
  }
  return rounded;
}

TEST_P(OpsTest, LinearEqualsItsTwin) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t rows : {0, 1, 2, 3, 5, 6, 7, 13, 40}) {
      for (const std::int64_t n : {1, 3, 4, 6, 33, 64}) {
        for (const std::int64_t k : {1, 7, 16, 31, 64, 577}) {
          const Tensor x = Tensor::random(1, DType::kF32, {rows, k}, 3);
          const Tensor w = Tensor::random(2, dtype, {n, k}, 5);
          for (const bool accumulate : {false, true}) {
            const Tensor want = Tensor::random(3, DType::kF32, {rows, n}, 7), got = want;
            ref->linear(as_multiplied(*ops, x, dtype), w, want, accumulate);
            ops->linear(x, w, got, accumulate);
            expect_near(values(got), values(want), 1e-6, std::sqrt(k), "linear");
          }
        }
      }
    }
  }
}

TEST_P(OpsTest, LinearHoldsItsToleranceOverLongSums) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor x = Tensor::random(1, DType::kF32, {9, 2048}), w = Tensor::random(2, dtype, {50, 2048});
    const Tensor want(DType::kF32, {9, 50}), got(DType::kF32, {9, 50});
    ref->linear(as_multiplied(*ops, x, dtype), w, want, false);
    ops->linear(x, w, got, false);
    expect_near(values(got), values(want), 1e-6, std::sqrt(2048.0), "linear K 2048");
  }
}

TEST_P(OpsTest, LinearRoundsActivationsByLessThanItPromises) {
  const Tensor x = Tensor::random(1, DType::kF32, {9, 577}), w = Tensor::random(2, DType::kBF16, {50, 577});
  const Tensor want(DType::kF32, {9, 50}), got(DType::kF32, {9, 50});
  ref->linear(x, w, want, false);
  ops->linear(x, w, got, false);
  for (std::int64_t r = 0; r < 9; ++r) {
    for (std::int64_t n = 0; n < 50; ++n) {
      double bound = 1e-6 * std::sqrt(577.0);
      for (std::int64_t k = 0; k < 577; ++k) {
        bound += std::abs(x.view().as<float>()[r * 577 + k] * to_float(w.view().as<Bf16>()[n * 577 + k])) / 512;
      }
      const auto i = static_cast<std::size_t>(r * 50 + n);
      EXPECT_NEAR(values(got)[i], values(want)[i], bound);
    }
  }
}

// Rows of all finite halves, sixteen each, picked out by a unit matrix; the compiler's own conversion is the reference.
TEST_P(OpsTest, LinearWidensEveryFiniteHalfExactly) {
  std::vector<_Float16> halves;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00u) != 0x7c00u) halves.push_back(std::bit_cast<_Float16>(static_cast<std::uint16_t>(bits)));
  }
  const auto count = static_cast<std::int64_t>(halves.size()) / 16;
  Tensor unit(DType::kF32, {16, 16});
  for (std::size_t i = 0; i < 16; ++i) unit.set(17 * i, 1);
  for (const std::int64_t rows : {1, 16}) {  // weights streamed; weights widened into a panel
    const Tensor out(DType::kF32, {rows, count}), twin(DType::kF32, {rows, count});
    const TensorView w = TensorView::of(halves.data(), DType::kF16, {count, 16});
    ops->linear(unit.rows(0, rows), w, out, false);
    ref->linear(unit.rows(0, rows), w, twin, false);
    for (std::int64_t i = 0; i < rows * count; ++i) {
      const auto want = static_cast<float>(halves[static_cast<std::size_t>(i % count * 16 + i / count)]);
      ASSERT_EQ(out.view().as<float>()[i], want);
      ASSERT_EQ(twin.view().as<float>()[i], want);
    }
  }
}

TEST_P(OpsTest, LinearWritesOnlyItsColumns) {
  const Tensor x = Tensor::random(1, DType::kF32, {7, 20}), w = Tensor::random(2, DType::kBF16, {5, 20});
  Tensor out = Tensor::random(3, DType::kF32, {7, 9});
  const std::vector<float> before = values(out);
  TensorView columns = out.view();
  columns.shape[1] = 5;
  ops->linear(x, w, columns, false);
  const std::vector<float> after = values(out);
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t c = 5; c < 9; ++c) EXPECT_EQ(after[r * 9 + c], before[r * 9 + c]);
  }
}

TEST_P(OpsTest, RmsNormEqualsItsTwinAlsoInPlace) {
  for (const std::int64_t h : {1, 8, 31, 64, 576}) {
    const Tensor x = Tensor::random(1, DType::kF32, {5, h}, 2), w = Tensor::random(2, DType::kF32, {h});
    const Tensor want(DType::kF32, {5, h}), got = x;
    ref->rms_norm(x, w, 1e-5f, want);
    ops->rms_norm(got, w, 1e-5f, got);
    expect_near(values(got), values(want), 1e-6, 0.1, "rms_norm");
  }
}

TEST_P(OpsTest, RmsNormOfAZeroRowIsZero) {
  const Tensor x(DType::kF32, {1, 19}), w = Tensor::random(2, DType::kF32, {19}), out(DType::kF32, {1, 19});
  ops->rms_norm(x, w, 1e-6f, out);
  for (const float y : values(out)) EXPECT_EQ(y, 0.0f);
}

TEST_P(OpsTest, RmsNormHeadsEqualsItsTwin) {
  for (const std::int64_t d : {6, 16, 128}) {
    const Tensor want = Tensor::random(1, DType::kF32, {4, 3, d}, 11), got = want;
    const Tensor w = Tensor::random(2, DType::kF32, {d});
    ref->rms_norm_heads(want, w, 1e-6f);
    ops->rms_norm_heads(got, w, 1e-6f);
    expect_near(values(got), values(want), 1e-6, 0.1, "rms_norm_heads");
  }
}

TEST_P(OpsTest, RopeEqualsItsTwin) {
  for (const std::int64_t d : {2, 6, 64, 128}) {
    const Tensor want = Tensor::random(1, DType::kF32, {4, 3, d}, 5), got = want;
    const Tensor cos_sin = Tensor::random(2, DType::kF32, {100, d});
    const std::vector<std::int32_t> positions = {0, 99, 17, 17};
    ref->rope(want, cos_sin, positions);
    ops->rope(got, cos_sin, positions);
    expect_near(values(got), values(want), 1e-6, 1, "rope");
  }
}

TEST_P(OpsTest, RopeTurnsHalvesAgainstEachOther) {
  Tensor x(DType::kF32, {1, 1, 4});
  for (std::size_t i = 0; i < 4; ++i) x.set(i, static_cast<float>(i + 1));
  Tensor cos_sin(DType::kF32, {1, 4});
  cos_sin.set(0, 0.6f), cos_sin.set(1, 1.0f), cos_sin.set(2, 0.8f), cos_sin.set(3, 0.0f);
  ops->rope(x, cos_sin, std::vector<std::int32_t>{0});
  expect_near(values(x), {1 * 0.6f - 3 * 0.8f, 2, 3 * 0.6f + 1 * 0.8f, 4}, 1e-6, 1, "rope by hand");
}

TEST_P(OpsTest, SiluMulEqualsItsTwinOnOrdinaryAndExtremeValues) {
  for (const std::int64_t width : {1, 15, 64, 1536}) {
    Tensor x = Tensor::random(1, DType::kF32, {3, 2 * width}, 4);
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); i += 3) x.set(i, static_cast<float>(i) * 10 - 300);
    const Tensor want(DType::kF32, {3, width}), got(DType::kF32, {3, width}, 3);
    ref->silu_mul(x, want);
    ops->silu_mul(x, got);
    expect_near(values(got), values(want), 1e-6, 1e-6, "silu_mul");
  }
}

TEST_P(OpsTest, EmbedCopiesRowsExactly) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor table = Tensor::random(1, dtype, {11, 37});
    const std::vector<std::int32_t> ids = {10, 0, 3, 3};
    const Tensor out(DType::kF32, {4, 37}, 2);
    ops->embed(table, ids, out);
    const std::vector<float> got = values(out);
    for (std::size_t r = 0; r < ids.size(); ++r) {
      for (std::size_t c = 0; c < 37; ++c) {
        const std::size_t at = static_cast<std::size_t>(ids[r]) * 37 + c;
        const float want = dtype == DType::kBF16  ? to_float(table.view().as<Bf16>()[at])
                           : dtype == DType::kF16 ? static_cast<float>(table.view().as<_Float16>()[at])
                                                  : table.view().as<float>()[at];
        EXPECT_EQ(got[r * 37 + c], want);
      }
    }
  }
}

TEST_P(OpsTest, WriteKvPutsEachRowIntoItsSlotAndTouchesNoOther) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Cache cache(1, dtype, 4, 2, 6, {{.context = 3, .rows = 6}, {.context = 0, .rows = 1}, {.context = 9, .rows = 0}});
    const Tensor k = Tensor::random(5, DType::kF32, {7, 2, 6}, 3), v = Tensor::random(6, DType::kF32, {7, 2, 6});
    Tensor want_k = cache.k, want_v = cache.v;
    const auto expect_row = [&](std::int64_t row, std::size_t slice, std::int64_t position) {
      const auto page = cache.block_tables[static_cast<std::size_t>(cache.block_table_first[slice] + position / 4)];
      for (std::int64_t i = 0; i < 12; ++i) {
        const auto at = static_cast<std::size_t>((page * 4 + position % 4) * 12 + i);
        want_k.set(at, k.view().as<float>()[row * k.view().strides[0] + i]);
        want_v.set(at, v.view().as<float>()[row * v.view().strides[0] + i]);
      }
    };
    for (std::int64_t i = 0; i < 6; ++i) expect_row(i, 0, 3 + i);
    expect_row(6, 1, 0);
    ops->write_kv(k, v, cache.batch(), cache.k, cache.v);
    EXPECT_EQ(cache.k.bytes(), want_k.bytes());
    EXPECT_EQ(cache.v.bytes(), want_v.bytes());
  }
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNaN) {
  const auto bits = [](std::uint32_t b) { return to_bf16(std::bit_cast<float>(b)).bits; };
  EXPECT_EQ(bits(0x3f808000), 0x3f80) << "a tie goes to the even one, down";
  EXPECT_EQ(bits(0x3f818000), 0x3f82) << "a tie goes to the even one, up";
  EXPECT_EQ(bits(0x3f808001), 0x3f81);
  EXPECT_EQ(bits(0x7f7fffff), 0x7f80) << "above the largest bfloat16: infinity";
  EXPECT_EQ(bits(0xff800000), 0xff80);
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

struct Geometry {
  std::int64_t heads, kv_heads, d;
  std::int32_t page_size;
  std::vector<Cache::Slice> slices;
};

TEST_P(OpsTest, PagedAttentionEqualsItsTwin) {
  const std::vector<Geometry> cases = {
      {9, 3, 64, 16, {{0, 1}, {5, 1}, {1500, 1}}},  // decode, short and over several spans
      {9, 3, 64, 1, {{0, 70}, {130, 3}}},           // prefill, mixed, page of one
      {4, 4, 6, 64, {{500, 20}, {0, 0}, {63, 2}}},  // no groups, d that fits no vector, a span's border
      {16, 1, 128, 7, {{40, 9}}},                   // one KV head for all
      {100, 2, 20, 8, {{3, 2}}},                    // group larger than a tile of queries
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Geometry& g : cases) {
      const Cache cache(7, dtype, g.page_size, g.kv_heads, g.d, g.slices);
      const Tensor q = Tensor::random(3, DType::kF32, {cache.total_rows(), g.heads, g.d}, 4);
      const Tensor want(DType::kF32, {cache.total_rows(), g.heads, g.d});
      const Tensor got(DType::kF32, {cache.total_rows(), g.heads, g.d}, 9);
      const float scale = 1 / std::sqrt(static_cast<float>(g.d));
      ref->paged_attention(q, cache.batch(), cache.k, cache.v, scale, want);
      ops->paged_attention(q, cache.batch(), cache.k, cache.v, scale, got);
      expect_near(values(got), values(want), 1e-5, 0.1, "attention");
    }
  }
}

TEST_P(OpsTest, PagedAttentionHoldsForScoresFarApart) {
  const Cache cache(7, DType::kF32, 16, 1, 64, {{.context = 600, .rows = 1}});
  const Tensor q = Tensor::random(3, DType::kF32, {1, 2, 64});
  const Tensor want(DType::kF32, {1, 2, 64}), got(DType::kF32, {1, 2, 64});
  ref->paged_attention(q, cache.batch(), cache.k, cache.v, 20, want);  // scores in the hundreds
  ops->paged_attention(q, cache.batch(), cache.k, cache.v, 20, got);
  expect_near(values(got), values(want), 1e-4, 0.1, "attention");
}

// Rows that are read too far would meet these: pages are poisoned with NaN behind the last position.
TEST_P(OpsTest, PagedAttentionReadsNoPositionBehindTheRow) {
  Cache cache(7, DType::kF32, 16, 2, 64, {{.context = 20, .rows = 1}});
  const std::int32_t page = cache.block_tables[1];
  for (std::int64_t i = (page * 16 + 5) * 128; i < (page + 1) * 16 * 128; ++i) {
    cache.k.set(static_cast<std::size_t>(i), std::numeric_limits<float>::quiet_NaN());
    cache.v.set(static_cast<std::size_t>(i), std::numeric_limits<float>::quiet_NaN());
  }
  const Tensor q = Tensor::random(3, DType::kF32, {1, 4, 64}), out(DType::kF32, {1, 4, 64});
  ops->paged_attention(q, cache.batch(), cache.k, cache.v, 0.1f, out);
  for (const float y : values(out)) EXPECT_TRUE(std::isfinite(y));
}

// Windows that begin within a block, on a span's border, just before the row, and at 0; nothing before them is read.
TEST_P(OpsTest, PagedAttentionReadsNoPositionBeforeTheFirstKey) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t d : {64, 20}) {  // 64: a lone query streams
      Cache cache(7, dtype, 16, 3, d, {{700, 1}, {300, 1}, {64, 40}, {1500, 1}, {90, 3}, {130, 1}, {40, 2}});
      cache.first_key = {500, 300, 64, 256, 1, 100, 0};
      cache.poison_unseen();
      const Tensor q = Tensor::random(3, DType::kF32, {cache.total_rows(), 9, d});
      const Tensor want(DType::kF32, {cache.total_rows(), 9, d}), got(DType::kF32, {cache.total_rows(), 9, d});
      ref->paged_attention(q, cache.batch(), cache.k, cache.v, 0.125f, want);
      ops->paged_attention(q, cache.batch(), cache.k, cache.v, 0.125f, got);
      for (const float y : values(want)) ASSERT_TRUE(std::isfinite(y));
      expect_near(values(got), values(want), 1e-5, 0.1, "attention from the first key");
    }
  }
}

// A draft smaller than the planes it was given: tokens lie further apart than its numbers.
TEST_P(OpsTest, PagesMayHaveRoomBehindEachToken) {
  const Cache wide(7, DType::kF32, 16, 3, 64, {{200, 1}, {30, 5}});
  Cache narrow(8, DType::kF32, 16, 2, 64, {{200, 1}, {30, 5}});
  narrow.block_tables = wide.block_tables;
  const auto first_heads = [](const Tensor& plane) {
    TensorView view = plane;
    view.shape[2] = 2;
    return view;
  };
  const TensorView k = first_heads(wide.k), v = first_heads(wide.v);
  const Tensor rows = Tensor::random(5, DType::kF32, {6, 2, 64});
  ops->write_kv(rows, rows, wide.batch(), k, v);
  for (std::int64_t page = 0; page < k.shape[0]; ++page) {
    for (std::int64_t slot = 0; slot < 16; ++slot) {
      for (std::int64_t i = 0; i < 128; ++i) {
        const auto to = static_cast<std::size_t>((page * 16 + slot) * 128 + i);
        narrow.k.set(to, k.as<float>()[(page * 16 + slot) * 192 + i]);
        narrow.v.set(to, v.as<float>()[(page * 16 + slot) * 192 + i]);
      }
    }
  }
  const Tensor q = Tensor::random(3, DType::kF32, {6, 4, 64});
  const Tensor want(DType::kF32, {6, 4, 64}), got(DType::kF32, {6, 4, 64});
  ops->paged_attention(q, narrow.batch(), narrow.k, narrow.v, 0.125f, want);
  ops->paged_attention(q, wide.batch(), k, v, 0.125f, got);
  EXPECT_EQ(values(got), values(want));
  ref->paged_attention(q, wide.batch(), k, v, 0.125f, want);
  expect_near(values(got), values(want), 1e-5, 0.1, "attention");
}

TEST(MakeCpuOps, GivesTheFastestOrTheNamedTable) {
  ThreadPool pool(1);
  const std::vector<std::string> tuned = tuned_tables();
  EXPECT_EQ(make_cpu_ops(pool)->name(), tuned.empty() ? "ref" : tuned.back());
  EXPECT_EQ(make_cpu_ops(pool, "ref")->name(), "ref");
  EXPECT_EQ(make_cpu_ops(pool, "sse9"), nullptr);
}

TEST(OpsDeathTest, AMisfitNamesItsArgument) {
  ThreadPool pool(1);
  const auto ops = make_cpu_ops(pool);
  const Tensor x(DType::kF32, {2, 8}), w(DType::kF32, {4, 9}), out(DType::kF32, {2, 4});
  EXPECT_DEATH(ops->linear(x, w, out, false), "w and x agree on K");
  EXPECT_DEATH(ops->embed(x, std::vector<std::int32_t>{2, 0}, Tensor(DType::kF32, {2, 8})),
               "ids lie in the vocabulary");
  Cache cache(7, DType::kF32, 16, 1, 8, {{20, 1}});
  cache.first_key = {21};
  const Tensor q(DType::kF32, {1, 1, 8});
  EXPECT_DEATH(ops->paged_attention(q, cache.batch(), cache.k, cache.v, 1, q), "every row sees itself");
}

}  // namespace
}  // namespace levada::kernels
