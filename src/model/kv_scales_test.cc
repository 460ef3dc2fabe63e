// Scales of a float8 KV cache: how checkpoints spell them, what is refused, and where a pool keeps those of its pages.
#include "model/kv_scales.h"

#include "kernels/page_scales.h"
#include "kernels/ref/ref_pages.h"
#include "model/checkpoint.h"
#include "model/fp8_checkpoint_test.h"
#include "model/paged_kv_pool.h"

namespace levada::model {
namespace {

std::string in_layer(int layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + ".self_attn." + name;
}

class KvScales : public testing::Test {
 protected:
  void add(int layer, const std::string& name, float scale) { folder.add_plain(in_layer(layer, name), {}, {scale}); }
  Result<Checkpoint> open() {
    folder.write_plain();
    return Checkpoint::open(folder.plain());
  }
  void expect_failure(const std::vector<std::string>& words) {
    const Status status = open().status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
    for (const std::string& word : words) EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
  Fp8Folder folder;
  std::unique_ptr<device::Device> device = std::move(device::open_device(device::DeviceKind::kCpu)).value();
};

TEST_F(KvScales, EverySpellingIsRead) {
  EXPECT_TRUE(open()->kv_scales().empty());
  add(0, "k_scale", 0.5f), add(0, "v_scale", 3);
  add(1, "k_proj.k_scale", 7), add(1, "v_proj.v_scale", 8);
  const auto two = open();
  ASSERT_TRUE(two.ok()) << two.status().to_string();
  ASSERT_EQ(two->kv_scales().size(), 2u);
  EXPECT_EQ(two->kv_scales()[0].k, 0.5f);
  EXPECT_EQ(two->kv_scales()[0].v, 3);
  EXPECT_EQ(two->kv_scales()[1].k, 7);
  EXPECT_EQ(two->kv_scales()[1].v, 8);
}

TEST_F(KvScales, OneForBothInAnyFloatTypeAndShapeOfOneElement) {
  add(0, "kv_scale", 2);
  folder.plain_tensors()[in_layer(1, "kv_scale")] = {"BF16", {1}, std::string("\x80\x3f", 2)};
  const auto both = open();
  ASSERT_TRUE(both.ok()) << both.status().to_string();
  EXPECT_EQ(both->kv_scales()[0].v, 2);
  EXPECT_EQ(both->kv_scales()[1].k, 1);
}

TEST_F(KvScales, AnotherScaleAnotherIdentity) {
  std::set<std::string> identities{open()->identity()};
  for (const float scale : {1.0f, 2.0f}) {
    for (const int layer : {0, 1}) add(layer, "kv_scale", scale);
    EXPECT_TRUE(identities.insert(open()->identity()).second);
  }
}

TEST_F(KvScales, WhatIsMissingIsNamed) {
  add(1, "k_scale", 1);
  expect_failure({in_layer(1, "v_scale") + " is missing"});
  add(1, "v_scale", 1);
  expect_failure({in_layer(0, "k_scale") + " is missing", in_layer(1, "v_scale") + " is there"});
  folder.plain_tensors().erase(in_layer(1, "k_scale"));
  folder.plain_tensors().erase(in_layer(1, "v_scale"));
  add(0, "kv_scale", 1);
  expect_failure({in_layer(1, "k_scale") + " is missing"});
}

TEST_F(KvScales, WhatIsSaidTwiceMisshapenOrOutOfRangeIsNamed) {
  for (const int layer : {0, 1}) add(layer, "kv_scale", 1);
  add(1, "k_scale", 1), add(1, "v_scale", 1);
  expect_failure({in_layer(1, "kv_scale"), in_layer(1, "v_scale"), "both scale"});
  folder.plain_tensors().erase(in_layer(1, "k_scale"));
  folder.plain_tensors().erase(in_layer(1, "v_scale"));
  for (const float scale : {0.0f, -1.0f, std::nanf(""), INFINITY, 1e-31f}) {
    add(1, "kv_scale", scale);
    expect_failure({in_layer(1, "kv_scale") + " is ", "between"});
  }
  folder.add_plain(in_layer(1, "kv_scale"), {2}, {1, 1});
  expect_failure({in_layer(1, "kv_scale") + " has shape [2]", "one float for the layer"});
  folder.plain_tensors()[in_layer(1, "kv_scale")] = {"I32", {}, std::string(4, '\0')};
  expect_failure({in_layer(1, "kv_scale"), "one float for the layer"});
}

TEST_F(KvScales, OtherNamesAreUnknownTensors) {
  for (const char* name : {"q_scale", "qkv_proj.k_scale", "attn.k_scale"}) {
    add(0, name, 1);
    expect_failure({"unknown tensor " + in_layer(0, name)});
    folder.plain_tensors().erase(in_layer(0, name));
  }
}

TEST_F(KvScales, AConfigurationThatDemandsThemWantsThem) {
  folder.config()["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                            {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}}}};
  expect_failure({in_layer(0, "k_scale") + " is missing", "kv_cache_scheme"});
  for (const int layer : {0, 1}) add(layer, "k_scale", 2), add(layer, "v_scale", 2);
  EXPECT_TRUE(open().ok()) << open().status().to_string();
}

// The CPU's cache has no float8: the scales change nothing there.
TEST_F(KvScales, TheCpuReadsPastThem) {
  const auto logits = [&] {
    folder.write_plain();
    Bench bench(folder.plain(), in_float32(), *device);
    Sequence sequence = bench.sequence({5, 17, 300});
    return bench.run(PlanBuilder().add(sequence, 3, true).plan()).values;
  };
  const std::vector<float> without = logits();
  for (const int layer : {0, 1}) add(layer, "kv_scale", 16);
  EXPECT_EQ(logits(), without);
}

TEST_F(KvScales, PagesCarryTheirScalesWhereverTheyAreCopied) {
  ModelConfig config;
  config.layers = 3, config.kv_heads = 2, config.head_dim = 8;
  const core::KvLayout layout = gqa_layout(config, DType::kF8E4M3, 4, KvScaling::kPage);
  auto pool = std::move(PagedKvPool::make(layout, 6, *device)).value();
  const device::TensorView scales = pool->plane(2, 1);
  EXPECT_EQ(scales.rank, 2);
  EXPECT_EQ(scales.shape[0], 6);
  EXPECT_EQ(scales.shape[1], kernels::kPageScales);
  scales.as<float>()[5 * kernels::kPageScales + 1] = 0.25f;
  const std::vector<kernels::PagePlane> planes = pool->page_planes();
  EXPECT_EQ(kernels::packed_page_bytes(planes), layout.bytes_per_page());
  std::vector<std::byte> packed(static_cast<std::size_t>(layout.bytes_per_page()));
  kernels::ref_gather_pages(planes, std::vector<std::int32_t>{5}, packed.data());
  pool->poison(5);
  EXPECT_TRUE(std::isnan(scales.as<float>()[5 * kernels::kPageScales + 1])) << "poison reaches them";
  kernels::ref_scatter_pages(planes, std::vector<std::int32_t>{2}, packed.data());
  EXPECT_EQ(scales.as<float>()[2 * kernels::kPageScales + 1], 0.25f);
}

TEST_F(KvScales, LayoutsWithOtherScalesHaveOtherIdentities) {
  ModelConfig config;
  config.layers = 3, config.kv_heads = 2, config.head_dim = 8;
  std::set<std::string> identities;
  for (const KvScaling scaling : {KvScaling::kNone, KvScaling::kLayer, KvScaling::kPage}) {
    EXPECT_TRUE(identities.insert(gqa_layout(config, DType::kF8E4M3, 4, scaling).identity()).second);
  }
}

}  // namespace
}  // namespace levada::model
