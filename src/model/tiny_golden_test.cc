// The tiny llama and qwen3 checkpoints against transformers' float32 results.
#include "model/model_support_test.h"

namespace levada::model {
namespace {

class TinyGolden : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return vectors() / "tiny" / GetParam(); }
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  Golden golden{GetParam()};
};

TEST_P(TinyGolden, LogitsOfEveryPositionAreWithinOneThousandth) {
  Bench bench(folder(), in_float32(), *device);
  for (const std::string prompt : {"p1", "p37", "p200"}) {
    Sequence sequence = bench.sequence(golden.ids(prompt + ".ids"));
    const auto count = static_cast<std::int32_t>(sequence.tokens.size());
    const Matrix logits = bench.run(PlanBuilder().add(sequence, count, true).plan());
    EXPECT_LE(largest_difference(logits.values, golden.matrix(prompt + ".logits").values), 1e-3f) << prompt;
  }
}

TEST_P(TinyGolden, HiddenStatesFollowEveryDecoderLayer) {
  Bench bench(folder(), in_float32(), *device);
  for (const std::string prompt : {"p1", "p37", "p200"}) {
    Sequence sequence = bench.sequence(golden.ids(prompt + ".ids"));
    const auto count = static_cast<std::int32_t>(sequence.tokens.size());
    bench.run(PlanBuilder().add(sequence, count).plan(), [&](int layer, device::TensorView hidden) {
      const Matrix expected = golden.matrix(prompt + ".hidden." + std::to_string(layer));  // the last rows only
      const float* last = hidden.as<float>() + (hidden.shape[0] - expected.rows) * hidden.strides[0];
      EXPECT_LE(largest_difference({last, expected.values.size()}, expected.values), 1e-3f) << prompt << " " << layer;
    });
  }
}

TEST_P(TinyGolden, GreedyIdsAreExact) {
  Bench bench(folder(), in_float32(), *device);
  for (const std::string prompt : {"p1", "p37", "p200"}) {
    EXPECT_EQ(bench.greedy(bench.sequence(golden.ids(prompt + ".ids"), 16), 16), golden.ids(prompt + ".greedy"))
        << prompt;
  }
}

TEST_P(TinyGolden, TheModelDescribesItself) {
  Bench bench(folder(), in_float32(), *device);
  const core::ModelInfo& info = bench.model->info();
  EXPECT_EQ(info.architecture, GetParam());
  EXPECT_EQ(info.vocab_size, 384);
  EXPECT_EQ(info.num_layers, 3);
  EXPECT_EQ(info.context_length_tokens, 512);
  EXPECT_EQ(info.eos_token_ids, std::vector<core::Token>{2});
  EXPECT_EQ(info.weight_dtype, DType::kF32);
  EXPECT_EQ(info.weights_identity.size(), 32u + std::string("-float32").size());
  EXPECT_EQ(bench.model->kv_layout().planes().size(), 2u);
  EXPECT_NE(bench.model->backend().find("2 threads"), std::string::npos) << bench.model->backend();
}

INSTANTIATE_TEST_SUITE_P(Families, TinyGolden, testing::Values("llama", "qwen3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace levada::model
