// What: DraftConfig, the geometry of a draft of either kind, read from and written to a Hugging Face style config.json.
// Owner: value type.
// Thread: any.
// Invariant: what check() passed is safe to allocate and compute with; what we don't implement (Domino, selectors,
// convolutions, scaled rotary angles) is refused by its name, never ignored.
// Fields: docs/formats/checkpoint.md. EAGLE-3's are in eagle_config.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace levada::model {

// kDflash: one block of masks, all tokens at once (docs/models.md, "DFlash drafts"). kEagle3: one layer that drafts a token a
// step and takes its own state back ("EAGLE-3 drafts").
enum class DraftKind : std::uint8_t { kDflash, kEagle3 };
// As --speculative-algorithm spells it: DFLASH, EAGLE3.
std::string_view to_string(DraftKind kind);

// Tokens of an EAGLE-3 chain, the one that it continues included: its config.json names no block, it is trained for seven
// steps (SpecForge's ttt_length).
inline constexpr std::int64_t kEagleBlock = 8;
inline constexpr std::int64_t kEagleFeatures = 3;  // captured layers, where config.json names none

struct DraftConfig {
  DraftKind kind = DraftKind::kDflash;
  std::int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  std::int64_t block_size = 16;        // tokens drafted at once, the anchor's included
  std::int64_t mask_token_id = -1;     // a row of the target's table that no data uses
  std::int64_t num_target_layers = 0;  // EAGLE-3: 0 where the file doesn't say
  // k: the output of target layer k, 0-based. EAGLE-3: empty until for_target(), where the file names none.
  std::vector<std::int64_t> target_layer_ids;
  double norm_eps = 1e-6, rope_theta = 10000;
  std::vector<bool> sliding;        // one per layer
  std::int64_t sliding_window = 0;  // 0: no layer slides
  bool attention_bias = false;
  std::int64_t max_positions = 0;
  std::string dtype = "bfloat16";  // of the exported weights: bfloat16 or float32
  // EAGLE-3 alone: rows of its own head; whether the state that is fed back is the normed one (SGLang's norm_output).
  std::int64_t draft_vocabulary = 0;
  bool feeds_normed = false;

  std::int64_t features() const {
    const auto named = static_cast<std::int64_t>(target_layer_ids.size());
    return (kind == DraftKind::kEagle3 && named == 0 ? kEagleFeatures : named) * hidden;
  }
  std::int64_t parameters() const;
  bool operator==(const DraftConfig&) const = default;
};

// Which layers of a target with `target_layers` layers a draft with `draft_layers` layers reads when nothing says
// otherwise: the middle one for a single layer, else evenly spread from 1 to target_layers - 3, halves to even.
// REQUIRES: draft_layers >= 1, target_layers >= 5.
std::vector<std::int64_t> default_target_layer_ids(std::int64_t target_layers, std::int64_t draft_layers);

// The layers that an EAGLE-3 draft reads when nothing says otherwise: SGLang's 1, half - 1, last - 3.
std::vector<std::int64_t> default_eagle_layer_ids(std::int64_t target_layers);

// `config` with what depends on the target filled in; kInvalidArgument if it can't be.
Result<DraftConfig> for_target(DraftConfig config, std::int64_t target_layers, const std::string& where);

// kInvalidArgument naming the field, its value and what is allowed.
Status check(const DraftConfig& config, const std::string& where);

// `file`: a config.json.
Result<DraftConfig> read_draft_config(const std::filesystem::path& file);
// The text of a config.json that SGLang, SpecForge and read_draft_config() read.
std::string draft_config_json(const DraftConfig& config);

}  // namespace levada::model
