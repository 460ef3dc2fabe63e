// What config.json may say: accepted, defaulted, or refused by the field's name.
#include "model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace levada::model {
namespace {

using nlohmann::json;

class HfConfig : public testing::Test {
 protected:
  HfConfig() { std::filesystem::create_directories(folder); }
  ~HfConfig() override { std::filesystem::remove_all(folder); }

  Result<ModelConfig> read(const json& changes) {
    json object = base;
    object.update(changes);
    std::ofstream(folder / "config.json") << object.dump();
    return read_hf_config(folder);
  }
  void expect_refused(const json& changes, const std::string& field) {
    const Result<ModelConfig> config = read(changes);
    ASSERT_FALSE(config.ok()) << changes;
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << changes;
    EXPECT_NE(config.status().message().find("config.json: " + field + ": "), std::string::npos)
        << config.status().to_string();
  }

  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("levada_config_" + std::to_string(::getpid()));
  json base = {{"model_type", "llama"},    {"hidden_size", 64},        {"num_hidden_layers", 2},
               {"num_attention_heads", 4}, {"intermediate_size", 128}, {"vocab_size", 100}};
};

TEST_F(HfConfig, DefaultsAreTheFamilys) {
  const ModelConfig llama = read(json::object()).value();
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head_dim, 16);  // hidden / heads
  EXPECT_EQ(llama.context, 2048);
  EXPECT_FLOAT_EQ(llama.norm_eps, 1e-6f);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_FALSE(llama.tied);
  EXPECT_FALSE(llama.qk_norm);
  const ModelConfig qwen3 = read({{"model_type", "qwen3"}}).value();
  EXPECT_EQ(qwen3.head_dim, 128);  // whatever hidden / heads is
  EXPECT_TRUE(qwen3.qk_norm);
}

TEST_F(HfConfig, BothGenerationsOfRopeFieldsAreRead) {
  const ModelConfig old_form = read({{"rope_theta", 5e5},
                                     {"rope_scaling",
                                      {{"type", "llama3"},
                                       {"factor", 32.0},
                                       {"low_freq_factor", 1.0},
                                       {"high_freq_factor", 4.0},
                                       {"original_max_position_embeddings", 8192}}}})
                                   .value();
  EXPECT_EQ(old_form.rope.kind, RopeConfig::Kind::kLlama3);
  EXPECT_EQ(old_form.rope.theta, 5e5);
  EXPECT_EQ(old_form.rope.original_context, 8192);
  const ModelConfig new_form =
      read({{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "linear"}, {"factor", 2.0}}}}).value();
  EXPECT_EQ(new_form.rope.kind, RopeConfig::Kind::kLinear);
  EXPECT_EQ(new_form.rope.theta, 1e6);
  EXPECT_EQ(new_form.rope.factor, 2);
  EXPECT_EQ(read({{"rope_scaling", nullptr}}).value().rope.kind, RopeConfig::Kind::kDefault);
}

TEST_F(HfConfig, YarnTakesItsAttentionFactorFromWhateverIsGiven) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  EXPECT_NEAR(read({{"rope_scaling", yarn}}).value().rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  json given = yarn;
  given["attention_factor"] = 1.25;
  EXPECT_EQ(read({{"rope_scaling", given}}).value().rope.attention_factor, 1.25);
  json mscale = yarn;
  mscale.update({{"mscale", 1.0}, {"mscale_all_dim", 1.0}});
  EXPECT_EQ(read({{"rope_scaling", mscale}}).value().rope.attention_factor, 1);
}

TEST_F(HfConfig, EosMayBeOneIdOrAListAndGenerationConfigWins) {
  EXPECT_EQ(read({{"eos_token_id", 7}}).value().eos, std::vector<core::Token>{7});
  EXPECT_EQ(read({{"eos_token_id", {7, 8}}}).value().eos, (std::vector<core::Token>{7, 8}));
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": [9]})";
  EXPECT_EQ(read({{"eos_token_id", 7}}).value().eos, std::vector<core::Token>{9});
}

TEST_F(HfConfig, WhatIsNotImplementedIsRefusedByName) {
  expect_refused({{"model_type", "mamba"}}, "model_type");
  expect_refused({{"attention_bias", true}}, "attention_bias");
  expect_refused({{"mlp_bias", true}}, "mlp_bias");
  expect_refused({{"hidden_act", "gelu"}}, "hidden_act");
  expect_refused({{"quantization_config", {{"quant_method", "awq"}}}}, "quantization_config.quant_method");
  expect_refused({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}, "rope_scaling.rope_type");
  expect_refused({{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}, "rope_parameters");
  expect_refused({{"partial_rotary_factor", 0.5}}, "partial_rotary_factor");
  expect_refused({{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 1}},
                 "use_sliding_window");
  expect_refused({{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types");
}

TEST_F(HfConfig, Float8InBlocksOf128IsReadAndOtherFormsOfItAreRefused) {
  const json blocks = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}};
  const auto changed = [&](const char* key, const json& value) {
    json object = blocks;
    object[key] = value;
    return json{{"quantization_config", object}};
  };
  EXPECT_FALSE(read(json::object())->fp8_blocks);
  EXPECT_TRUE(read({{"quantization_config", blocks}})->fp8_blocks);
  EXPECT_TRUE(read(changed("activation_scheme", "dynamic"))->fp8_blocks);
  EXPECT_TRUE(read(changed("modules_to_not_convert", {"lm_head"}))->fp8_blocks);
  expect_refused(changed("activation_scheme", "static"), "quantization_config.activation_scheme");
  expect_refused(changed("fmt", "e5m2"), "quantization_config.fmt");
  expect_refused(changed("weight_block_size", {1, 128}), "quantization_config.weight_block_size");
  expect_refused({{"quantization_config", {{"quant_method", "fp8"}}}}, "quantization_config.weight_block_size");
}

TEST_F(HfConfig, OfCompressedTensorsAKvCacheSchemeAloneIsRead) {
  const json scheme = {{"num_bits", 8},    {"type", "float"},   {"strategy", "tensor"},
                       {"dynamic", false}, {"symmetric", true}, {"observer", "minmax"}};
  const auto changed = [&](const char* key, const json& value) {
    json object = scheme;
    object[key] = value;
    return json{{"quantization_config", {{"quant_method", "compressed-tensors"}, {"kv_cache_scheme", object}}}};
  };
  EXPECT_FALSE(read(json::object())->kv_scales);
  EXPECT_TRUE(read(changed("num_bits", 8))->kv_scales);
  EXPECT_FALSE(read(changed("dynamic", true))->kv_scales) << "then tensors have none";
  const std::string at = "quantization_config.kv_cache_scheme.";
  expect_refused(changed("num_bits", 4), at + "num_bits");
  expect_refused(changed("type", "int"), at + "type");
  expect_refused(changed("strategy", "attn_head"), at + "strategy");
  expect_refused(changed("symmetric", false), at + "symmetric");
  json weights = changed("num_bits", 8);
  weights["quantization_config"]["config_groups"] = {{"group_0", {{"targets", {"Linear"}}}}};
  expect_refused(weights, "quantization_config.config_groups");
  weights["quantization_config"]["config_groups"] = json::object();
  EXPECT_TRUE(read(weights)->kv_scales);
}

TEST_F(HfConfig, AWindowThatNoLayerUsesIsHarmless) {
  EXPECT_TRUE(read({{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 2}}).ok());
  EXPECT_TRUE(read({{"use_sliding_window", false}, {"sliding_window", 32}}).ok());
}

TEST_F(HfConfig, AbsurdNumbersAreRefusedByName) {
  expect_refused({{"num_attention_heads", 0}}, "num_attention_heads");
  expect_refused({{"num_hidden_layers", 1ll << 60}}, "num_hidden_layers");
  expect_refused({{"num_hidden_layers", 18446744073709551615ull}}, "num_hidden_layers");
  expect_refused({{"hidden_size", -64}}, "hidden_size");
  expect_refused({{"hidden_size", "64"}}, "hidden_size");
  expect_refused({{"hidden_size", 64.5}}, "hidden_size");
  expect_refused({{"num_key_value_heads", 3}}, "num_key_value_heads");
  expect_refused({{"num_key_value_heads", 8}}, "num_key_value_heads");
  expect_refused({{"head_dim", 15}}, "head_dim");
  expect_refused({{"vocab_size", 0}}, "vocab_size");
  expect_refused({{"rms_norm_eps", 0}}, "rms_norm_eps");
  expect_refused({{"rope_theta", -1.0}}, "rope_theta");
  expect_refused({{"rope_theta", 1e300}}, "rope_theta");
  expect_refused({{"eos_token_id", 100}}, "eos_token_id");
  expect_refused({{"eos_token_id", {"</s>"}}}, "eos_token_id");
  expect_refused({{"max_position_embeddings", 1ll << 40}}, "max_position_embeddings");
  expect_refused({{"rope_scaling", {{"type", "linear"}, {"factor", 0.0}}}}, "rope_scaling.factor");
}

TEST_F(HfConfig, AFaultReadsFileFieldValueAndLimit) {
  const std::string file = (folder / "config.json").string();
  EXPECT_EQ(read({{"rope_theta", 1e13}}).status().message(),
            file + ": rope_theta: 10000000000000 is not between 2 and 1000000000000");
  EXPECT_EQ(read({{"max_position_embeddings", 1ll << 40}}).status().message(),
            file + ": max_position_embeddings: 1099511627776 is not between 1 and 16777216");
  EXPECT_EQ(read({{"hidden_size", "64"}}).status().message(),
            file + ": hidden_size: must be a whole number, it is \"64\"");
  EXPECT_EQ(read({{"model_type", "a\nb"}}).status().message(),
            file + ": model_type: 'a\\x0ab' is not supported; supported are llama and qwen3");
}

TEST_F(HfConfig, AFileThatIsNoJsonObjectIsDamaged) {
  for (const char* text : {"", "{", "[1, 2]", "\xFF\xFE", "{\"model_type\": \"llama\""}) {
    std::ofstream(folder / "config.json") << text;
    EXPECT_EQ(read_hf_config(folder).status().code(), StatusCode::kDataLoss) << text;
  }
  std::filesystem::remove(folder / "config.json");
  EXPECT_EQ(read_hf_config(folder).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace levada::model
