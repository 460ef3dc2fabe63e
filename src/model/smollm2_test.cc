// SmolLM2-135M-Instruct from its packaged Q4_1 GGUF against transformers on the same weights.
#include "model/model_support_test.h"
#include "support/instrumented.h"

namespace levada::model {
namespace {

using nlohmann::json;

const json& golden() {
  static const json parsed = [] {
    std::ifstream in(vectors() / "smollm2_golden.json");
    return json::parse(in);
  }();
  return parsed;
}

Bench open(const std::string& dtype, device::Device& device, const std::string& kv = "auto") {
  ModelOptions options;
  options.dtype = dtype;
  options.kv_cache_dtype = kv;
  return Bench(LEVADA_SMOLLM2_GGUF, options, device);
}

class SmolLm2 : public testing::Test {
 protected:
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

void expect_statistics(std::span<const float> logits, const json& expected, double tolerance) {
  double sum = 0, squares = 0, exponentials = 0;
  const float largest = *std::max_element(logits.begin(), logits.end());
  for (float logit : logits) {
    sum += logit;
    squares += static_cast<double>(logit) * logit;
    exponentials += std::exp(static_cast<double>(logit - largest));
  }
  const double mean = sum / static_cast<double>(logits.size());
  EXPECT_NEAR(mean, expected["mean"], tolerance);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(logits.size()) - mean * mean), expected["std"], tolerance);
  EXPECT_NEAR(largest + std::log(exponentials), expected["logsumexp"], tolerance);
}

void expect_last_logits(Bench& bench, double tolerance) {
  for (const json& expected : golden()["last_logits"]) {
    Sequence sequence = bench.sequence(expected["ids"].get<std::vector<core::Token>>());
    const auto count = static_cast<std::int32_t>(sequence.tokens.size());
    const Matrix logits = bench.run(PlanBuilder().add(sequence, count).plan());
    for (std::size_t i = 0; i < expected["top20_ids"].size(); ++i) {
      EXPECT_NEAR(logits.values[expected["top20_ids"][i].get<std::size_t>()], expected["top20"][i].get<float>(),
                  tolerance);
    }
    expect_statistics(logits.values, expected, tolerance);
  }
}

TEST_F(SmolLm2, LastTokenLogitsAreWithinTwoThousandths) {
  Bench bench = open("float32", *device);
  expect_last_logits(bench, 2e-3);
}

// Activations of two bytes add about 1e-3 (root mean square) to what float32 weights have; bfloat16 weights add 3e-2.
TEST_F(SmolLm2, LastTokenLogitsWithWeightsAsStoredAreWithinFiveThousandths) {
  Bench bench = open("auto", *device, "float32");
  expect_last_logits(bench, 5e-3);
}

TEST_F(SmolLm2, HiddenStatesAreWithinOneThousandthOfTheLayersDeviation) {
  Bench bench = open("float32", *device);
  const json& hidden = golden()["hidden"];
  Sequence sequence = bench.sequence(hidden["ids"].get<std::vector<core::Token>>());
  const auto count = static_cast<std::int32_t>(sequence.tokens.size());
  int compared = 0;
  bench.run(PlanBuilder().add(sequence, count).plan(), [&](int layer, device::TensorView states) {
    const auto found = hidden["layers"].find(std::to_string(layer));
    if (found == hidden["layers"].end()) return;
    ++compared;
    const float* first = states.as<float>();
    const float* last = first + (count - 1) * states.strides[0];
    const double last_tolerance = 1e-3 * (*found)["last_std"].get<double>();
    const double tolerance = 1e-3 * (*found)["all_std"].get<double>();
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(last[i], (*found)["last_first8"][i].get<float>(), last_tolerance) << "layer " << layer;
      EXPECT_NEAR(first[i], (*found)["tok0_first8"][i].get<float>(), tolerance) << "layer " << layer;
    }
  });
  EXPECT_EQ(compared, 4);  // 0, 5, 15, 25
}

// Of the reference's answers; an instrumented step takes a hundred times as long.
const std::size_t kPrompts = test::kInstrumented ? 1 : 5;
const std::size_t kSteps = test::kInstrumented ? 8 : 48;

// Feeds the reference's tokens whole and compares the choice at every step whose margin exceeds `margin`.
void expect_choices(Bench& bench, double margin) {
  ASSERT_GE(golden()["greedy"].size(), kPrompts);
  for (std::size_t p = 0; p < kPrompts; ++p) {
    const json& expected = golden()["greedy"][p];
    auto tokens = expected["prompt_ids"].get<std::vector<core::Token>>();
    auto answer = expected["ids"].get<std::vector<core::Token>>();
    answer.resize(kSteps);
    const std::size_t prompt = tokens.size();
    tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
    Sequence sequence = bench.sequence(tokens);
    const auto count = static_cast<std::int32_t>(tokens.size());
    const Matrix logits = bench.run(PlanBuilder().add(sequence, count, true).plan());
    int compared = 0;
    for (std::size_t i = 0; i < answer.size(); ++i) {
      if (expected["margin"][i].get<double>() <= margin) continue;
      ++compared;
      const auto row = logits.row(static_cast<std::int64_t>(prompt + i) - 1);
      EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), answer[i])
          << expected["prompt"] << " step " << i << " margin " << expected["margin"][i];
    }
    EXPECT_GT(compared, static_cast<int>(answer.size() / 2));
  }
}

TEST_F(SmolLm2, GreedyChoicesAreExactWhereTheMarginExceedsOneThousandth) {
  Bench bench = open("float32", *device);
  expect_choices(bench, 1e-3);
}

TEST_F(SmolLm2, FreeRunningGreedyTextIsExact) {
  Bench bench = open("float32", *device);
  const json& expected = golden()["greedy"][0];
  auto answer = expected["ids"].get<std::vector<core::Token>>();
  answer.resize(kSteps);
  const auto ids = bench.greedy(bench.sequence(expected["prompt_ids"].get<std::vector<core::Token>>(), 64),
                                static_cast<int>(answer.size()));
  EXPECT_EQ(ids, answer);
}

TEST_F(SmolLm2, BfloatChoicesAgreeWhereTheMarginExceedsOneHalf) {
  Bench bench = open("bfloat16", *device);
  EXPECT_EQ(bench.model->info().weight_dtype, DType::kBF16);
  expect_choices(bench, 0.5);
}

TEST_F(SmolLm2, ChoicesWithWeightsAsStoredAgreeWhereTheMarginExceedsOneHalf) {
  Bench bench = open("auto", *device);
  EXPECT_EQ(bench.model->info().weight_dtype, DType::kBF16);
  expect_choices(bench, 0.5);
}

TEST_F(SmolLm2, TheFileDescribesTheModel) {
  Bench bench = open("auto", *device);
  const core::ModelInfo& info = bench.model->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.vocab_size, 49152);
  EXPECT_EQ(info.context_length_tokens, 8192);
  EXPECT_EQ(info.eos_token_ids, std::vector<core::Token>{2});
  EXPECT_EQ(info.parameters, 134515008);
}

}  // namespace
}  // namespace levada::model
