// What: DraftConfig, the geometry of a DFlash draft, read from and written to a Hugging Face style config.json.
// Owner: value type.
// Thread: any.
// Invariant: what check() passed is safe to allocate and compute with; what we don't implement (Domino, selectors,
// convolutions, scaled rotary angles) is refused by its name, never ignored.
// Fields: docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace levada::model {

struct DraftConfig {
  std::int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  std::int64_t block_size = 16;     // tokens drafted at once, the anchor's included
  std::int64_t mask_token_id = -1;  // a row of the target's table that no data uses
  std::int64_t num_target_layers = 0;
  std::vector<std::int64_t> target_layer_ids;  // k: the output of target layer k, 0-based
  double norm_eps = 1e-6, rope_theta = 10000;
  std::vector<bool> sliding;        // one per layer
  std::int64_t sliding_window = 0;  // 0: no layer slides
  bool attention_bias = false;
  std::int64_t max_positions = 0;
  std::string dtype = "bfloat16";  // of the exported weights: bfloat16 or float32

  std::int64_t features() const { return static_cast<std::int64_t>(target_layer_ids.size()) * hidden; }
  std::int64_t parameters() const;
  bool operator==(const DraftConfig&) const = default;
};

// Which layers of a target with `target_layers` layers a draft with `draft_layers` layers reads when nothing says
// otherwise: the middle one for a single layer, else evenly spread from 1 to target_layers - 3, halves to even.
// REQUIRES: draft_layers >= 1, target_layers >= 5.
std::vector<std::int64_t> default_target_layer_ids(std::int64_t target_layers, std::int64_t draft_layers);

// kInvalidArgument naming the field, its value and what is allowed.
Status check(const DraftConfig& config, const std::string& where);

// `file`: a config.json.
Result<DraftConfig> read_draft_config(const std::filesystem::path& file);
// The text of a config.json that SGLang, SpecForge and read_draft_config() read.
std::string draft_config_json(const DraftConfig& config);

}  // namespace levada::model
