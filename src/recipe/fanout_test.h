// What: recipes for tests: the fan-out sample of the spec as it stands there, and a short one for this machine.
// Owner: none.
// Thread: any.
// Invariant: kSpecSample is SpecForge's shape; only what the sample itself leaves out (the model) is set by kModel.
#pragma once

#include <string>
#include <vector>

#include "recipe/fanout_recipe.h"

namespace levada::recipe {

inline constexpr const char* kSpecSample = R"(
data: {train_data_path: prompts.jsonl, max_prompts: 48, max_length: 3072}
training: {strategy: dflash, num_epochs: 1, batch_size: 2, max_steps: 24}
deployment: {mode: disaggregated, trainer: {nnodes: 1, nproc_per_node: 1}, disaggregated: {control_dir: out/ctl, backend: mooncake,
  windowed_fanout: {window_lookahead: 16, max_live_refs: 48, max_live_bytes: 25769803776, capture_reservation_bytes: 536870912, consumers: [
    {consumer_id: b4,  seed: 42, loss_type: dflash, dpace_alpha: 0.5, draft_block_size: 4,  num_anchors: 64,  learning_rate: 0.0006, warmup_ratio: 0.04},
    {consumer_id: b8,  seed: 43, loss_type: dflash, dpace_alpha: 0.5, draft_block_size: 8,  num_anchors: 128, learning_rate: 0.0006, warmup_ratio: 0.04},
    {consumer_id: b16, seed: 44, loss_type: dflash, dpace_alpha: 0.5, draft_block_size: 16, num_anchors: 256, learning_rate: 0.0006, warmup_ratio: 0.04}]},
  managed_local: {trainer_cuda_visible_devices: ["1", "2", "3"], capture_servers: [{port: 30000, cuda_visible_devices: ["0"]}]}}}
)";
inline constexpr const char* kModel = "model.target_model_path=Qwen3-8B";

inline constexpr const char* kCpuRecipe = R"(run_id: demo
output_dir: out
model: {target_model_path: smollm2, torch_dtype: bfloat16, draft_num_hidden_layers: 1}
data: {prompts_path: p.jsonl, max_prompts: 8, max_length: 256}
training: {strategy: dflash, batch_size: 2, learning_rate: 0.001}
deployment:
  mode: disaggregated
  disaggregated:
    control_dir: out/control
    backend: mooncake
    windowed_fanout:
      max_live_refs: 8
      max_live_bytes: 67108864
      capture_reservation_bytes: 8388608
      capture_max_sample_bytes: 8388608
      consumers:
        - {consumer_id: b4, seed: 1, loss_type: dflash, dpace_alpha: 0.5, draft_block_size: 4, num_anchors: 64, learning_rate: 0.002, warmup_ratio: 0.1}
    managed_local:
      capture_servers: [{port: 30000}]
)";

// The recipe with `overrides`; `server` as in load_fanout().
inline Result<FanoutRecipe> read_test_recipe(const std::string& yaml, const std::vector<std::string>& overrides = {},
                                             const OptionTable& server = {}) {
  LEVADA_ASSIGN_OR_RETURN(Recipe recipe, Recipe::parse(yaml, "r.yaml"));
  for (const std::string& assignment : overrides) LEVADA_RETURN_IF_ERROR(recipe.override_with(assignment));
  return read_fanout(std::move(recipe), server);
}

}  // namespace levada::recipe
