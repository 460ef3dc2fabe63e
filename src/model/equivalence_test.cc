// How a prompt is cut, who shares its batch and where its pages lie must not change one bit (float32, CPU).
#include "model/model_support_test.h"

namespace levada::model {
namespace {

class Equivalence : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return vectors() / "tiny" / GetParam(); }
  std::vector<core::Token> prompt(int tokens, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<core::Token> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<core::Token>(random() % 384));
    return ids;
  }
  // Logits of every position, computed in one go by a fresh model.
  Matrix whole(const std::vector<core::Token>& ids) const {
    Bench bench(folder(), in_float32(), *device);
    Sequence sequence = bench.sequence(ids);
    return bench.run(PlanBuilder().add(sequence, static_cast<std::int32_t>(ids.size()), true).plan());
  }
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

void expect_same_bits(std::span<const float> actual, std::span<const float> expected, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << where;
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << where << " element " << i;
}

TEST_P(Equivalence, ChunkedPrefillEqualsWhole) {
  const auto ids = prompt(150, 1);
  const Matrix expected = whole(ids);
  std::mt19937 random(2);
  for (int round = 0; round < 5; ++round) {
    Bench bench(folder(), in_float32(), *device, static_cast<unsigned>(round));
    Sequence sequence = bench.sequence(ids);
    while (sequence.computed < 150) {
      const std::int32_t first = sequence.computed;
      const std::int32_t count = std::min<std::int32_t>(150 - first, 1 + static_cast<std::int32_t>(random() % 40));
      const Matrix logits = bench.run(PlanBuilder().add(sequence, count, true).plan());
      for (std::int32_t i = 0; i < count; ++i) {
        expect_same_bits(logits.row(i), expected.row(first + i), "position " + std::to_string(first + i));
      }
    }
  }
}

TEST_P(Equivalence, DecodingTokenByTokenEqualsWhole) {
  const auto ids = prompt(60, 3);
  const Matrix expected = whole(ids);
  Bench bench(folder(), in_float32(), *device);
  Sequence sequence = bench.sequence(ids);
  for (std::int32_t i = 0; i < 60; ++i) {
    expect_same_bits(bench.run(PlanBuilder().add(sequence, 1).plan()).row(0), expected.row(i), std::to_string(i));
  }
}

// One step holds: [decode a][prefill b, second chunk][decode c][whole prefill d]
TEST_P(Equivalence, AMixedBatchEqualsEachRequestAlone) {
  const auto a = prompt(33, 4), b = prompt(70, 5), c = prompt(18, 6), d = prompt(41, 7);
  Bench bench(folder(), in_float32(), *device);
  Sequence sa = bench.sequence(a), sb = bench.sequence(b), sc = bench.sequence(c), sd = bench.sequence(d);
  bench.run(PlanBuilder().add(sa, 32).add(sb, 25).add(sc, 17).plan());
  const Matrix logits = bench.run(PlanBuilder().add(sa, 1).add(sb, 45).add(sc, 1).add(sd, 41).plan());
  expect_same_bits(logits.row(0), whole(a).row(32), "a");
  expect_same_bits(logits.row(1), whole(b).row(69), "b");
  expect_same_bits(logits.row(2), whole(c).row(17), "c");
  expect_same_bits(logits.row(3), whole(d).row(40), "d");
}

TEST_P(Equivalence, ThePageSizeChangesNothing) {
  const auto ids = prompt(90, 8);
  const Matrix expected = whole(ids);
  for (std::int32_t page_size : {1, 4, 64}) {
    Bench bench(folder(), in_float32(page_size), *device);
    Sequence sequence = bench.sequence(ids);
    const Matrix logits = bench.run(PlanBuilder().add(sequence, 90, true).plan());
    expect_same_bits(logits.values, expected.values, "page size " + std::to_string(page_size));
  }
}

TEST_P(Equivalence, TheNumberOfThreadsChangesNothing) {
  const auto ids = prompt(90, 9);
  ModelOptions options = in_float32();
  options.threads = 1;
  Bench bench(folder(), options, *device);
  Sequence sequence = bench.sequence(ids);
  expect_same_bits(bench.run(PlanBuilder().add(sequence, 90, true).plan()).values, whole(ids).values, "one thread");
}

TEST_P(Equivalence, SharedPrefixPagesServeTwoRequests) {
  const auto ids = prompt(64, 10);
  Bench bench(folder(), in_float32(), *device);
  Sequence first = bench.sequence(ids);
  bench.run(PlanBuilder().add(first, 64).plan());
  Sequence second = bench.sequence(ids);
  second.pages = {first.pages[0], first.pages[1], second.pages[2], second.pages[3]};  // 32 tokens are reused
  second.computed = 32;
  expect_same_bits(bench.run(PlanBuilder().add(second, 32).plan()).row(0), whole(ids).row(63), "warm");
}

TEST_P(Equivalence, BfloatWeightsAndCacheStayNearFloat) {
  const auto ids = prompt(100, 11);
  ModelOptions options = in_float32();
  options.dtype = "bfloat16";
  Bench bench(folder(), options, *device);
  EXPECT_EQ(bench.model->kv_layout().planes()[0].dtype, DType::kBF16);
  Sequence sequence = bench.sequence(ids);
  const Matrix actual = bench.run(PlanBuilder().add(sequence, 100, true).plan()), expected = whole(ids);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < actual.values.size(); ++i) {
    const double difference = actual.values[i] - expected.values[i];
    error += difference * difference;
    norm += static_cast<double>(expected.values[i]) * expected.values[i];
  }
  EXPECT_LT(std::sqrt(error / norm), 0.03);
}

INSTANTIATE_TEST_SUITE_P(Families, Equivalence, testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levada::model
