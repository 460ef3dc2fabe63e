// What: DraftFolders, the oracle's toy target and its draft as folders that load_model() and load_draft() read, and steps
// with drafts over them.
// Owner: the test; the folders go with it.
// Thread: one.
// Invariant: weights are the oracle's (tests/vectors/dflash/decode.safetensors) until a test changes them.
// Test code only.
#pragma once

#include "model/draft_config.h"
#include "model/model_support_test.h"
#include "model/stored_tensors_test.h"
#include "support/temporary_folder.h"

namespace levada::model {

class DraftFolders {
 public:
  DraftFolders() {
    const auto golden = std::move(files::open_safetensors(vectors() / "dflash/decode.safetensors")).value();
    std::map<std::string, StoredTensor> target;
    for (const files::TensorInfo& info : golden->tensors()) {
      const StoredTensor stored{
          "F32", info.shape, {reinterpret_cast<const char*>(info.bytes.data()), info.bytes.size()}};
      if (info.name.starts_with("w.")) tensors[info.name.substr(2)] = stored;
      if (info.name.starts_with("t.")) target[target_name(info.name.substr(2))] = stored;
    }
    const nlohmann::json json{{"architectures", {"LlamaForCausalLM"}},
                              {"model_type", "llama"},
                              {"hidden_size", 32},
                              {"intermediate_size", 64},
                              {"num_hidden_layers", 6},
                              {"num_attention_heads", 2},
                              {"num_key_value_heads", 2},
                              {"head_dim", 16},
                              {"rms_norm_eps", 1e-6},
                              {"rope_theta", 10000.0},
                              {"max_position_embeddings", 256},
                              {"tie_word_embeddings", false},
                              {"hidden_act", "silu"},
                              {"torch_dtype", "float32"},
                              {"vocab_size", 64},
                              {"eos_token_id", 62}};
    std::ofstream(target_.path() / "config.json") << json.dump();
    write_safetensors(target_.path() / "model.safetensors", target);
    config.hidden = 32, config.intermediate = 64, config.layers = 2, config.heads = 2, config.kv_heads = 1;
    config.head_dim = 16, config.vocabulary = 64, config.block_size = 4, config.mask_token_id = 63;
    config.num_target_layers = 6, config.target_layer_ids = {0, 2, 4};
    config.norm_eps = 1e-6, config.rope_theta = 10000, config.sliding = {false, false};
    config.max_positions = 256, config.dtype = "float32";
    write();
  }
  const std::filesystem::path& target() const { return target_.path(); }
  const std::filesystem::path& draft() const { return draft_.path(); }
  // After changes.
  void write() const {
    std::ofstream(draft_.path() / "config.json") << draft_config_json(config);
    write_safetensors(draft_.path() / "model.safetensors", tensors);
  }
  // Every tensor as bfloat16: cut, not rounded.
  void store_as_bfloat() {
    for (auto& [name, tensor] : tensors) {
      std::string halves;
      for (std::size_t i = 0; i < tensor.bytes.size(); i += 4) halves += tensor.bytes.substr(i + 2, 2);
      tensor.bytes = halves;
      tensor.dtype = "BF16";
    }
    config.dtype = "bfloat16";
    write();
  }
  // Room for this draft, and then some in every direction.
  ModelOptions options(std::int32_t page_size = 4) const {
    ModelOptions options = in_float32(page_size);
    options.draft_room = {.layers = 3, .kv_width = 24, .features = 200, .parameters = 1 << 20, .block_size = 8};
    return options;
  }

  DraftConfig config;
  std::map<std::string, StoredTensor> tensors;

 private:
  static std::string target_name(const std::string& name) {
    if (name == "lm_head.weight") return name;
    if (!name.starts_with("layers.")) return "model." + name;
    const std::map<std::string, std::string> names{{"ln1", "input_layernorm"}, {"ln2", "post_attention_layernorm"},
                                                   {"q", "self_attn.q_proj"},  {"k", "self_attn.k_proj"},
                                                   {"v", "self_attn.v_proj"},  {"o", "self_attn.o_proj"},
                                                   {"gate", "mlp.gate_proj"},  {"up", "mlp.up_proj"},
                                                   {"down", "mlp.down_proj"}};
    const std::size_t dot = name.rfind('.');
    return "model." + name.substr(0, dot + 1) + names.at(name.substr(dot + 1)) + ".weight";
  }
  test::TemporaryFolder target_, draft_;
};

inline constexpr core::DraftVersion kTestDraft{1};

// What a request adds to a step that knows a draft.
struct DraftSlice {
  std::int32_t count = 0, drafts = 0, propose = 0, draft_from = 0;
};

// The next `count` tokens of a sequence; its last 1 + drafts rows are sampled, greedily.
inline void add_slice(core::StepPlan& plan, Sequence& sequence, const DraftSlice& wanted) {
  core::PlanSlice slice;
  slice.range = {core::RequestId{plan.slices.size()}, sequence.computed, wanted.count};
  slice.first_row = static_cast<std::int32_t>(plan.tokens.size());
  slice.block_table_first = static_cast<std::int32_t>(plan.block_tables.size());
  slice.block_table_pages = static_cast<std::int32_t>(sequence.pages.size());
  slice.sample_row = static_cast<std::int32_t>(plan.samples.size());
  slice.drafts = wanted.drafts;
  slice.propose = wanted.propose;
  slice.draft_from = wanted.draft_from;
  plan.block_tables.insert(plan.block_tables.end(), sequence.pages.begin(), sequence.pages.end());
  for (std::int32_t i = 0; i < wanted.count; ++i) {
    plan.tokens.push_back(sequence.tokens[static_cast<std::size_t>(sequence.computed + i)]);
    plan.positions.push_back(sequence.computed + i);
    if (i + 1 + wanted.drafts < wanted.count) continue;
    core::SampleRow row;
    row.row = slice.first_row + i;
    row.position = sequence.computed + i + 1;
    row.temperature = 0;
    plan.samples.push_back(row);
  }
  plan.draft = kTestDraft;
  plan.slices.push_back(slice);
  sequence.computed += wanted.count;
}

inline StepTokens run_step(Bench& bench, const core::StepPlan& plan, const std::shared_ptr<const Draft>& draft) {
  auto forward = std::move(bench.model->begin(plan, *bench.pool, draft)).value();
  EXPECT_TRUE(forward->all_layers().ok());
  return std::move(std::move(forward->sample()).value()->wait()).value();
}

// One request alone: what the step gives.
inline StepTokens run_slice(Bench& bench, Sequence& sequence, const DraftSlice& wanted,
                            const std::shared_ptr<const Draft>& draft) {
  core::StepPlan plan;
  add_slice(plan, sequence, wanted);
  return run_step(bench, plan, draft);
}

// The first numbers of a position's token in a plane.
inline std::span<float> plane_row(const Bench& bench, const Sequence& sequence, int plane, int layer,
                                  std::int32_t position, std::int64_t count) {
  const device::TensorView view = bench.pool->plane(plane, layer);
  const auto size = static_cast<std::int32_t>(view.shape[1]);
  const std::int64_t page = sequence.pages[static_cast<std::size_t>(position / size)];
  return {view.as<float>() + page * view.strides[0] + position % size * view.strides[1],
          static_cast<std::size_t>(count)};
}

}  // namespace levada::model
