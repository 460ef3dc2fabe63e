#include "model/draft_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace levada::model {
namespace {

using test::TemporaryFolder;

DraftConfig smollm2() {
  DraftConfig c;
  c.hidden = 576;
  c.intermediate = 1536;
  c.layers = 4;
  c.heads = 9;
  c.kv_heads = 3;
  c.head_dim = 64;
  c.vocabulary = 49152;
  c.block_size = 8;
  c.mask_token_id = 16;
  c.num_target_layers = 30;
  c.target_layer_ids = {1, 8, 14, 20, 27};
  c.norm_eps = 1e-5;
  c.rope_theta = 1e5;
  c.sliding = {false, false, false, false};
  c.max_positions = 8192;
  return c;
}

Result<DraftConfig> read(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << text;
  return read_draft_config(folder.path() / "config.json");
}

// The written text with one piece replaced.
Result<DraftConfig> read_with(const std::string& from, const std::string& to) {
  std::string text = draft_config_json(smollm2());
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return read(text.replace(at, from.size(), to));
}

TEST(TargetLayerIds, DefaultRuleRoundsHalvesToEven) {
  using Ids = std::vector<std::int64_t>;
  EXPECT_EQ(default_target_layer_ids(36, 5), (Ids{1, 9, 17, 25, 33}));
  EXPECT_EQ(default_target_layer_ids(28, 5), (Ids{1, 7, 13, 19, 25}));
  EXPECT_EQ(default_target_layer_ids(24, 5), (Ids{1, 6, 11, 16, 21}));
  EXPECT_EQ(default_target_layer_ids(64, 5), (Ids{1, 16, 31, 46, 61}));
  EXPECT_EQ(default_target_layer_ids(40, 8), (Ids{1, 6, 11, 16, 22, 27, 32, 37}));
  EXPECT_EQ(default_target_layer_ids(30, 5), (Ids{1, 8, 14, 20, 27}));
  EXPECT_EQ(default_target_layer_ids(36, 1), (Ids{18}));
}

TEST(DraftConfig, WhatIsWrittenIsRead) {
  EXPECT_EQ(read(draft_config_json(smollm2())).value(), smollm2());
  DraftConfig sliding = smollm2();
  sliding.sliding = {true, true, true, false};
  sliding.sliding_window = 2048;
  sliding.attention_bias = true;
  sliding.dtype = "float32";
  EXPECT_EQ(read(draft_config_json(sliding)).value(), sliding);
}

TEST(DraftConfig, ParametersOfAQwen3Sized8BDraft) {
  DraftConfig c = smollm2();
  c.hidden = 4096;
  c.intermediate = 12288;
  c.layers = 5;
  c.heads = 32;
  c.kv_heads = 8;
  c.head_dim = 128;
  EXPECT_NEAR(static_cast<double>(c.parameters()), 1.0486e9, 1e6);
}

TEST(DraftConfig, NestedFieldsWinAndMissingOnesHaveTheirDefaults) {
  const DraftConfig nested = read_with("\"mask_token_id\": 16", "\"block_size\": 12, \"mask_token_id\": 17").value();
  EXPECT_EQ(nested.block_size, 12);
  EXPECT_EQ(nested.mask_token_id, 17);
  // Layer types absent: all full. Ids absent: the default rule for four layers.
  std::string text = draft_config_json(smollm2());
  const auto ids = text.find("\"target_layer_ids\"");
  text.erase(ids, text.find(']', ids) + 1 - ids).insert(ids, "\"unused\": 0");
  const auto types = text.find("\"layer_types\"");
  text.erase(types, text.find(']', types) + 1 - types).insert(types, "\"layer_types\": null");
  const DraftConfig bare = read(text).value();
  EXPECT_EQ(bare.target_layer_ids, default_target_layer_ids(30, 4));
  EXPECT_EQ(bare.sliding, smollm2().sliding);
}

TEST(DraftConfig, OldAndNewSpellingOfTheRotaryBase) {
  std::string text = draft_config_json(smollm2());
  const auto at = text.find("\"rope_parameters\"");
  text.erase(at, text.find('}', at) + 2 - at);
  EXPECT_EQ(read(text).value().rope_theta, 1e5) << "rope_theta and rope_scaling null";
  EXPECT_EQ(read_with("\"rope_theta\": 100000.0,\n  \"rope_scaling\"", "\"rope_scaling\"").value().rope_theta, 1e5)
      << "rope_parameters alone";
}

TEST(DraftConfig, WhatWeDoNotComputeIsRefusedByName) {
  for (const auto& [from, to, field] : std::vector<std::array<std::string, 3>>{
           {"\"mask_token_id\"", "\"projector_type\": \"domino\", \"mask_token_id\"", "projector_type"},
           {"\"mask_token_id\"", "\"conv_kernel_size\": 3, \"mask_token_id\"", "conv_kernel_size"},
           {"\"mask_token_id\"", "\"attention_sink_bias\": true, \"mask_token_id\"", "attention_sink_bias"},
           {"\"mask_token_id\"", "\"output_multiplier\": 2, \"mask_token_id\"", "output_multiplier"},
           {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\"}", "rope_type"},
           {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "hidden_act"},
           {"\"model_type\"", "\"is_causal\": true, \"model_type\"", "is_causal"}}) {
    const Status status = read_with(from, to).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field;
    EXPECT_NE(status.to_string().find(field), std::string::npos) << status.to_string();
  }
}

TEST(DraftConfig, NumbersOutOfRangeNameFieldAndLimit) {
  for (const auto& [from, to, field] : std::vector<std::array<std::string, 3>>{
           {"\"hidden_size\": 576", "\"hidden_size\": 0", "hidden_size"},
           {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 1000000000000", "layer_types"},
           {"\"num_key_value_heads\": 3", "\"num_key_value_heads\": 2", "num_key_value_heads"},
           {"\"head_dim\": 64", "\"head_dim\": 63", "head_dim"},
           {"\"block_size\": 8", "\"block_size\": 1", "block_size"},
           {"\"mask_token_id\": 16", "\"mask_token_id\": 49152", "mask_token_id"},
           {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0", "rms_norm_eps"}}) {
    const Status status = read_with(from, to).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(status.field(), field) << status.to_string();
  }
}

// B23: an id is the output of that layer, 0-based; the last layer's feeds the head and is refused, as is one outside.
TEST(DraftConfig, B23LayerIdsOutsideTheTargetAreRefused) {
  for (std::int64_t id : {-1, 29, 30, 1000}) {
    DraftConfig c = smollm2();
    c.target_layer_ids.back() = id;
    EXPECT_EQ(check(c, "x").field(), "target_layer_ids") << id;
  }
  DraftConfig twice = smollm2();
  twice.target_layer_ids = {1, 8, 8};
  EXPECT_EQ(check(twice, "x").field(), "target_layer_ids");
}

TEST(DraftConfig, AFileThatIsNoJsonObjectIsDataLoss) {
  EXPECT_EQ(read("[1").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(read_draft_config("/nowhere/config.json").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace levada::model
