// Hugging Face checkpoints in float8: the CPU computes with what the numbers mean; what doesn't fit is named.
#include "model/fp8_checkpoint_test.h"

namespace levada::model {
namespace {

class Fp8Checkpoint : public testing::Test {
 protected:
  Matrix logits(const std::filesystem::path& path) {
    Bench bench(path, in_float32(), *device);
    Sequence sequence = bench.sequence({5, 17, 300, 2, 2, 81, 9});
    return bench.run(PlanBuilder().add(sequence, 7, true).plan());
  }
  void expect_failure(const std::vector<std::string>& words, bool with_quantization = true) {
    folder.write_again(with_quantization);
    const Status status = load_model(folder.float8(), in_float32(), *device).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
    for (const std::string& word : words) EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
  Fp8Folder folder;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
  const std::string kGate = "model.layers.1.mlp.gate_proj.weight";
};

TEST_F(Fp8Checkpoint, GivesBitForBitWhatTheSameWeightsInFloat32Give) {
  const Matrix narrow = logits(folder.float8()), wide = logits(folder.plain());
  EXPECT_EQ(narrow.values, wide.values);
  EXPECT_GT(largest_difference(narrow.row(0), narrow.row(6)), 0.1f) << "the weights have some effect";
}

TEST_F(Fp8Checkpoint, BlocksThatTheBorderCutsHaveScalesToo) {
  const Fp8Folder cut(/*intermediate=*/200);
  EXPECT_EQ(logits(cut.float8()).values, logits(cut.plain()).values);
}

TEST_F(Fp8Checkpoint, ScalesMayBeBfloat16) {
  std::string& bytes = folder.tensors()[kGate + "_scale_inv"].bytes;  // of seven-bit fractions
  std::string upper;
  for (std::size_t i = 0; i < bytes.size(); i += 4) upper += bytes.substr(i + 2, 2);
  bytes = upper;
  folder.tensors()[kGate + "_scale_inv"].dtype = "BF16";
  folder.write_again();
  EXPECT_EQ(logits(folder.float8()).values, logits(folder.plain()).values);
}

TEST_F(Fp8Checkpoint, MissingOrMisshapenScalesAreNamed) {
  auto scales = folder.tensors().extract(kGate + "_scale_inv");
  expect_failure({"tensor " + kGate + "_scale_inv is missing"});
  scales.mapped().shape = {2, 3};
  folder.tensors().insert(std::move(scales));
  expect_failure({kGate + "_scale_inv has shape [2, 3]", "[3, 2]"});
}

TEST_F(Fp8Checkpoint, Float8WithoutItsConfigurationOrInANormIsNamed) {
  expect_failure({"is stored as F8_E4M3", "quantization_config"}, /*with_quantization=*/false);
  folder.tensors()["model.norm.weight"].dtype = "F8_E4M3";
  folder.tensors()["model.norm.weight"].bytes.resize(256);
  expect_failure({"model.norm.weight is stored as F8_E4M3"});
}

TEST_F(Fp8Checkpoint, AFloat8KvCacheIsRefusedOnTheCpu) {
  ModelOptions options = in_float32();
  options.kv_cache_dtype = "fp8_e4m3";
  const Status status = load_model(folder.plain(), options, *device).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "kv_cache_dtype");
  EXPECT_NE(status.message().find("not supported on the CPU"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace levada::model
