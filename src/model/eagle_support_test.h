// What: EagleFolders, the oracle's toy target and an EAGLE-3 draft for it, its weights drawn at random, as folders that
// load_model() and load_draft() read.
// Owner: the test; the folders go with it.
// Thread: one.
// Invariant: a test may change config and tensors, and then write().
// Test code only.
#pragma once

#include "model/draft_support_test.h"

namespace levada::model {

inline StoredTensor stored_floats(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return {"F32", std::move(shape), {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
}
inline StoredTensor stored_offsets(const std::vector<std::int64_t>& values) {
  return {"I64",
          {static_cast<std::int64_t>(values.size())},
          {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)}};
}

class EagleFolders {
 public:
  explicit EagleFolders(unsigned seed = 1) {
    config.kind = DraftKind::kEagle3, config.block_size = kEagleBlock;
    config.hidden = 32, config.intermediate = 48, config.layers = 1, config.heads = 2, config.kv_heads = 1;
    config.head_dim = 16, config.vocabulary = 64, config.draft_vocabulary = 40, config.num_target_layers = 6;
    config.target_layer_ids = {0, 2, 4}, config.sliding = {false}, config.max_positions = 256;
    config.dtype = "float32";
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.3f);
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      std::vector<float> values(static_cast<std::size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
      for (float& value : values) value = normal(random) + (shape.size() == 1 ? 1.0f : 0.0f);
      tensors[name] = stored_floats(values, shape);
    };
    for (const char* name : {"norm.weight", "midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight",
                             "midlayer.post_attention_layernorm.weight"}) {
      add(name, {32});
    }
    add("fc.weight", {32, 96});
    add("lm_head.weight", {40, 32});
    add("midlayer.self_attn.q_proj.weight", {32, 64});
    add("midlayer.self_attn.k_proj.weight", {16, 64});
    add("midlayer.self_attn.v_proj.weight", {16, 64});
    add("midlayer.self_attn.o_proj.weight", {32, 32});
    add("midlayer.mlp.gate_proj.weight", {48, 32});
    add("midlayer.mlp.up_proj.weight", {48, 32});
    add("midlayer.mlp.down_proj.weight", {32, 48});
    std::string marks(64, '\0');
    for (std::int64_t row = 0; row < 40; ++row) {
      offsets.push_back(row / 2);
      marks[static_cast<std::size_t>(row + row / 2)] = 1;
    }
    tensors["d2t"] = stored_offsets(offsets);
    tensors["t2d"] = {"BOOL", {64}, marks};
    write();
  }
  const std::filesystem::path& target() const { return target_.target(); }
  const std::filesystem::path& draft() const { return draft_.path(); }
  void write() const {
    std::ofstream(draft_.path() / "config.json") << draft_config_json(config);
    write_safetensors(draft_.path() / "model.safetensors", tensors);
  }
  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    node.key() = to;
    tensors.insert(std::move(node));
  }
  ModelOptions options(std::int32_t page_size = 4) const {
    ModelOptions options = in_float32(page_size);
    options.draft_room = {.layers = 1,
                          .kv_width = 24,
                          .features = 200,
                          .parameters = 1 << 20,
                          .block_size = kEagleBlock,
                          .kind = DraftKind::kEagle3};
    return options;
  }

  DraftConfig config;
  std::map<std::string, StoredTensor> tensors;
  std::vector<std::int64_t> offsets;

 private:
  DraftFolders target_;
  test::TemporaryFolder draft_;
};

// The next `count` tokens of a prompt that goes on: no sample. `says_next`: whether the plan names the token behind them.
inline void run_chunk(Bench& bench, Sequence& sequence, std::int32_t count, const std::shared_ptr<const Draft>& draft,
                      bool says_next = true, std::int32_t draft_from = 0) {
  core::StepPlan plan;
  add_slice(plan, sequence, {count, 0, 0, draft_from});
  plan.samples.clear();
  plan.slices[0].sample_row = -1;
  if (says_next) plan.slices[0].next_token = sequence.tokens[static_cast<std::size_t>(sequence.computed)];
  EXPECT_TRUE(run_step(bench, plan, draft).proposed.empty());
}

// Verifies `guessed` and asks for `propose` more; how many of them were right.
inline std::int32_t verify_guesses(Bench& bench, Sequence& sequence, StepTokens& last, std::int32_t propose,
                                   const std::shared_ptr<const Draft>& draft, std::int32_t draft_from = 0) {
  const std::vector<core::Token> guessed = last.proposed;
  const auto drafts = static_cast<std::int32_t>(guessed.size());
  sequence.tokens.insert(sequence.tokens.end(), guessed.begin(), guessed.end());
  last = run_slice(bench, sequence, {1 + drafts, drafts, propose, draft_from}, draft);
  const std::int32_t right = core::accepted_drafts(last.sampled, guessed);
  sequence.computed -= drafts - right;
  sequence.tokens.resize(sequence.tokens.size() - static_cast<std::size_t>(drafts - right));
  sequence.tokens.push_back(last.sampled[static_cast<std::size_t>(right)]);
  return right;
}

}  // namespace levada::model
