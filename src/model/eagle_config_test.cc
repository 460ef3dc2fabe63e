// The config.json of EAGLE-3 drafts: what SpecForge publishes, what we write, what is refused.
#include <gtest/gtest.h>

#include <fstream>

#include "model/draft_config.h"
#include "support/temporary_folder.h"

namespace levada::model {
namespace {

Result<DraftConfig> read_eagle(const std::string& text) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << text;
  return read_draft_config(folder.path() / "config.json");
}

// Llama 3.1 8B's, with the fields of SpecForge's configs/llama3-8B-eagle3.json.
const std::string kPublished = R"({"architectures": ["LlamaForCausalLMEagle3"], "bos_token_id": 128000,
  "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32,
  "num_key_value_heads": 8, "num_hidden_layers": 1, "pad_token_id": 0, "rms_norm_eps": 1e-05,
  "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.28.1", "use_cache": true,
  "vocab_size": 128256, "draft_vocab_size": 32000, "dtype": "bfloat16"})";

Result<DraftConfig> read_with_field(const std::string& field) {
  return read_eagle("{" + field + ", " + kPublished.substr(1));
}

TEST(EagleConfig, APublishedOneIsRead) {
  const auto read = read_eagle(kPublished);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->kind, DraftKind::kEagle3);
  EXPECT_EQ(read->head_dim, 128);
  EXPECT_EQ(read->draft_vocabulary, 32000);
  EXPECT_EQ(read->block_size, kEagleBlock);
  EXPECT_EQ(read->features(), 3 * 4096);
  EXPECT_TRUE(read->target_layer_ids.empty());
  EXPECT_FALSE(read->feeds_normed);
  // 3 x 16.8 M fc, 131 M head, 67 M attention, 176 M MLP.
  EXPECT_NEAR(static_cast<double>(read->parameters()), 425e6, 1e6);
  const auto resolved = for_target(*read, 32, "config");
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  EXPECT_EQ(resolved->target_layer_ids, (std::vector<std::int64_t>{1, 15, 28}));
  EXPECT_EQ(resolved->num_target_layers, 32);
}

TEST(EagleConfig, WhatIsWrittenIsRead) {
  DraftConfig config = std::move(read_eagle(kPublished)).value();
  EXPECT_EQ(read_eagle(draft_config_json(config)).value(), config);
  config.target_layer_ids = {2, 9, 20};
  config.num_target_layers = 24;
  config.feeds_normed = true;
  config.dtype = "float32";
  config.rope_theta = 5e5;
  EXPECT_EQ(read_eagle(draft_config_json(config)).value(), config);
}

TEST(EagleConfig, LayersAreFoundInEitherPlace) {
  const std::vector<std::int64_t> ids{1, 29, 57};
  EXPECT_EQ(read_with_field(R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]})")->target_layer_ids,
            ids);
  EXPECT_EQ(read_with_field(R"("eagle_aux_hidden_state_layer_ids": [1, 29, 57])")->target_layer_ids, ids);
}

TEST(EagleConfig, WhatIsNotBuiltIsRefusedByName) {
  for (const auto& [field, word] : std::map<std::string, std::string>{
           {R"("attention_bias": true)", "attention_bias"},
           {R"("norm_before_residual": true)", "norm_before_residual"},
           {R"("target_hidden_size": 2880)", "target_hidden_size"},
           {R"("rope_scaling": {"rope_type": "llama3", "factor": 8})", "rope_type"},
           {R"("eagle_config": {"use_aux_hidden_state": false})", "use_aux_hidden_state"},
           {R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 1]})", "eagle_aux_hidden_state_layer_ids"},
           {R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, -3]})",
            "eagle_aux_hidden_state_layer_ids"}}) {
    const auto read = read_with_field(field);
    ASSERT_FALSE(read.ok()) << field;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(read.status().to_string().find(word), std::string::npos) << read.status().to_string();
  }
}

TEST(EagleConfig, ADraftThatDoesNotFitItsTargetIsRefused) {
  const DraftConfig config = std::move(read_eagle(kPublished)).value();
  EXPECT_NE(for_target(config, 6, "config").status().to_string().find("6 layers"), std::string::npos);
  DraftConfig named = config;
  named.target_layer_ids = {1, 2, 5};
  EXPECT_TRUE(for_target(named, 7, "config").ok());
  EXPECT_FALSE(for_target(named, 6, "config").ok()) << "the last layer's output feeds the head itself";
  named.target_layer_ids = {1, 2, 2};
  EXPECT_FALSE(for_target(named, 7, "config").ok());
}

}  // namespace
}  // namespace levada::model
