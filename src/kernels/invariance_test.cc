// Batch invariance: a row's bits depend on its own inputs alone, not on its neighbours, the chunk or the threads.
#include <gtest/gtest.h>

#include "kernels/test_tensors.h"

namespace levada::kernels {
namespace {

struct InvarianceTest : ::testing::TestWithParam<std::string> {
  ThreadPool pool{2};
  std::unique_ptr<Ops> ops = make_cpu_ops(pool, GetParam());
};
INSTANTIATE_TEST_SUITE_P(Tables, InvarianceTest, ::testing::ValuesIn(tuned_tables()),
                         [](const auto& i) { return i.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(InvarianceTest);

TEST_P(InvarianceTest, LinearRowsAreEqualAloneAndTogether) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const std::int64_t k : {64, 201}) {
      const Tensor x = Tensor::random(1, DType::kF32, {300, k}), w = Tensor::random(2, dtype, {53, k});
      const Tensor alone(DType::kF32, {300, 53});
      for (std::int64_t r = 0; r < 300; ++r) ops->linear(x.rows(r, 1), w, alone.rows(r, 1), false);
      for (const std::int64_t rows : {2, 3, 4, 5, 6, 7, 8, 9, 64, 300}) {
        const Tensor together(DType::kF32, {rows, 53});
        ops->linear(x.rows(0, rows), w, together, false);
        ASSERT_EQ(values(together), values(alone.rows(0, rows))) << rows << " rows";
      }
    }
  }
}

TEST_P(InvarianceTest, LinearColumnsDontDependOnTheirNeighbours) {
  const Tensor x = Tensor::random(1, DType::kF32, {2, 100}), w = Tensor::random(2, DType::kBF16, {21, 100});
  const Tensor whole(DType::kF32, {2, 21});
  ops->linear(x, w, whole, false);
  for (std::int64_t n = 0; n < 21; ++n) {
    const Tensor one(DType::kF32, {2, 1});
    ops->linear(x, w.rows(n, 1), one, false);
    EXPECT_EQ(values(one)[0], values(whole)[static_cast<std::size_t>(n)]);
  }
}

TEST_P(InvarianceTest, LinearIsEqualForAnyNumberOfThreads) {
  const Tensor x = Tensor::random(1, DType::kF32, {17, 576}), w = Tensor::random(2, DType::kBF16, {1000, 576});
  const Tensor want(DType::kF32, {17, 1000});
  ops->linear(x, w, want, false);
  for (const int threads : {1, 3}) {
    ThreadPool other(threads);
    const Tensor got(DType::kF32, {17, 1000});
    make_cpu_ops(other, GetParam())->linear(x, w, got, false);
    EXPECT_EQ(values(got), values(want)) << threads << " threads";
  }
}

// 1,100 tokens: over two span borders. Whole, in chunks of several sizes, token by token, and beside other requests.
TEST_P(InvarianceTest, AttentionIsEqualWholeChunkedAndTokenByToken) {
  constexpr std::int32_t kTokens = 1100;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Cache whole(7, dtype, 16, 2, 32, {{.context = 0, .rows = kTokens}});
    const Tensor q = Tensor::random(3, DType::kF32, {kTokens, 6, 32}), want(DType::kF32, {kTokens, 6, 32});
    ops->paged_attention(q, whole.batch(), whole.k, whole.v, 0.2f, want);
    for (const std::int32_t chunk : {1, 7, 64, 500}) {
      const Tensor got(DType::kF32, {kTokens, 6, 32});
      for (std::int32_t at = 0; at < kTokens; at += chunk) {
        Cache part = whole;
        part.context = {at};
        part.rows = {std::min(chunk, kTokens - at)};
        ops->paged_attention(q.rows(at, part.rows[0]), part.batch(), part.k, part.v, 0.2f, got.rows(at, part.rows[0]));
      }
      ASSERT_EQ(values(got), values(want)) << "chunks of " << chunk;
    }
  }
}

// The same with a first key, that lies within a block of the second span.
TEST_P(InvarianceTest, AttentionFromAFirstKeyIsEqualInChunksAndTokenByToken) {
  constexpr std::int32_t kTokens = 700, kFirst = 150;
  const Tensor q = Tensor::random(3, DType::kF32, {kTokens, 6, 32}), want(DType::kF32, {kTokens, 6, 32});
  Cache cache(7, DType::kF32, 16, 2, 32, {{.context = 0, .rows = kTokens}});
  cache.first_key = {kFirst};
  for (const std::int32_t chunk : {kTokens - kFirst, 1, 9, 64}) {
    const Tensor got(DType::kF32, {kTokens, 6, 32});
    for (std::int32_t at = kFirst; at < kTokens; at += chunk) {
      cache.context = {at};
      cache.rows = {std::min(chunk, kTokens - at)};
      const TensorView to = (chunk == kTokens - kFirst ? want : got).rows(at, cache.rows[0]);
      ops->paged_attention(q.rows(at, cache.rows[0]), cache.batch(), cache.k, cache.v, 0.2f, to);
    }
    if (chunk != kTokens - kFirst) {
      ASSERT_EQ(values(got), values(want)) << "chunks of " << chunk;
    }
  }
}

TEST_P(InvarianceTest, AttentionIsEqualAloneAndInABatchForAnyNumberOfThreads) {
  const Cache cache(7, DType::kBF16, 8, 3, 64, {{700, 1}, {0, 40}, {63, 1}, {64, 5}, {1030, 1}});
  const Tensor q = Tensor::random(3, DType::kF32, {cache.total_rows(), 9, 64});
  const Tensor want(DType::kF32, {cache.total_rows(), 9, 64});
  ops->paged_attention(q, cache.batch(), cache.k, cache.v, 0.125f, want);
  for (const int threads : {1, 2, 3}) {
    ThreadPool other(threads);
    const auto other_ops = make_cpu_ops(other, GetParam());
    const Tensor got(DType::kF32, {cache.total_rows(), 9, 64});
    for (std::size_t s = 0; s < cache.rows.size(); ++s) {
      PagedBatch one = cache.batch();
      one.first_row = one.first_row.subspan(s, 1);
      one.rows = one.rows.subspan(s, 1);
      one.context = one.context.subspan(s, 1);
      one.block_table_first = one.block_table_first.subspan(s, 1);
      other_ops->paged_attention(q, one, cache.k, cache.v, 0.125f, got);
    }
    EXPECT_EQ(values(got), values(want)) << threads << " threads";
  }
}

TEST_P(InvarianceTest, RowKernelsAreEqualAloneAndTogether) {
  const Tensor x = Tensor::random(1, DType::kF32, {70, 2 * 93}), w = Tensor::random(2, DType::kF32, {2 * 93});
  const Tensor normed(DType::kF32, {70, 2 * 93}), gated(DType::kF32, {70, 93});
  ops->rms_norm(x, w, 1e-5f, normed);
  ops->silu_mul(x, gated);
  for (std::int64_t r = 0; r < 70; ++r) {
    const Tensor one_normed(DType::kF32, {1, 2 * 93}), one_gated(DType::kF32, {1, 93});
    ops->rms_norm(x.rows(r, 1), w, 1e-5f, one_normed);
    ops->silu_mul(x.rows(r, 1), one_gated);
    EXPECT_EQ(values(one_normed), values(normed.rows(r, 1)));
    EXPECT_EQ(values(one_gated), values(gated.rows(r, 1)));
  }
}

}  // namespace
}  // namespace levada::kernels
