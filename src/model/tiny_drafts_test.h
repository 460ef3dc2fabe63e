// What: drafts of both kinds for the tiny targets of tests/vectors/tiny, as folders that load_draft() reads.
// Owner: the test.
// Thread: one.
// Invariant: weights are drawn from the seed.
// Test code only.
#pragma once

#include <algorithm>
#include <random>

#include "model/draft_config.h"
#include "model/stored_tensors_test.h"

namespace levada::model {

// A draft for a tiny target, its weights drawn at random: it is nearly always wrong.
inline void write_draft(const std::string& target, unsigned seed, const std::filesystem::path& folder) {
  DraftConfig c;
  const bool llama = target == "llama";
  c.hidden = llama ? 72 : 64, c.intermediate = 48, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8;
  c.vocabulary = 384, c.block_size = 5, c.mask_token_id = 383, c.num_target_layers = 3, c.target_layer_ids = {0, 1};
  c.sliding = {false, true}, c.sliding_window = 6, c.max_positions = 512, c.dtype = "float32";
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  std::map<std::string, StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    std::vector<float> values(count, 1.0f);
    if (shape.size() > 1) std::generate(values.begin(), values.end(), [&] { return normal(random); });
    tensors[name] = {"F32", shape, {reinterpret_cast<const char*>(values.data()), count * sizeof(float)}};
  };
  add("fc.weight", {c.hidden, c.features()});
  for (const char* name : {"hidden_norm.weight", "norm.weight"}) add(name, {c.hidden});
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::string p = "layers." + std::to_string(layer) + ".";
    for (const char* name : {"input_layernorm.weight", "post_attention_layernorm.weight"}) add(p + name, {c.hidden});
    for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) add(p + name, {c.head_dim});
    add(p + "self_attn.q_proj.weight", {c.heads * c.head_dim, c.hidden});
    for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"})
      add(p + name, {c.kv_heads * c.head_dim, c.hidden});
    add(p + "self_attn.o_proj.weight", {c.hidden, c.heads * c.head_dim});
    for (const char* name : {"mlp.gate_proj.weight", "mlp.up_proj.weight"}) add(p + name, {c.intermediate, c.hidden});
    add(p + "mlp.down_proj.weight", {c.hidden, c.intermediate});
  }
  std::ofstream(folder / "config.json") << draft_config_json(c);
  write_safetensors(folder / "model.safetensors", tensors);
}

// An EAGLE-3 one: nearly always wrong, too.
inline void write_eagle(const std::string& target, unsigned seed, const std::filesystem::path& folder) {
  DraftConfig c;
  c.kind = DraftKind::kEagle3, c.block_size = kEagleBlock;
  c.hidden = target == "llama" ? 72 : 64, c.intermediate = 48, c.layers = 1, c.heads = 4, c.kv_heads = 2,
  c.head_dim = 8;
  c.vocabulary = 384, c.draft_vocabulary = 192, c.num_target_layers = 3, c.target_layer_ids = {0, 1};
  c.sliding = {false}, c.max_positions = 512, c.dtype = "float32";
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  std::map<std::string, StoredTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::vector<float> values(static_cast<std::size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)), 1.0f);
    if (shape.size() > 1) std::generate(values.begin(), values.end(), [&] { return normal(random); });
    tensors[name] = {"F32", shape, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
  };
  const std::string m = "midlayer.", a = m + "self_attn.", f = m + "mlp.";
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  for (const std::string& name :
       {std::string("norm"), m + "input_layernorm", m + "hidden_norm", m + "post_attention_layernorm"}) {
    add(name + ".weight", {c.hidden});
  }
  add("fc.weight", {c.hidden, c.features()}), add("lm_head.weight", {c.draft_vocabulary, c.hidden});
  add(a + "q_proj.weight", {q, 2 * c.hidden}), add(a + "k_proj.weight", {kv, 2 * c.hidden});
  add(a + "v_proj.weight", {kv, 2 * c.hidden}), add(a + "o_proj.weight", {c.hidden, q});
  add(f + "gate_proj.weight", {c.intermediate, c.hidden}), add(f + "up_proj.weight", {c.intermediate, c.hidden});
  add(f + "down_proj.weight", {c.hidden, c.intermediate});
  std::vector<std::int64_t> offsets;  // every other token
  for (std::int64_t row = 0; row < c.draft_vocabulary; ++row) offsets.push_back(row);
  tensors["d2t"] = {"I64", {c.draft_vocabulary}, {reinterpret_cast<const char*>(offsets.data()), offsets.size() * 8}};
  std::ofstream(folder / "config.json") << draft_config_json(c);
  write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace levada::model
