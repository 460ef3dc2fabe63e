// What: ModelConfig, the geometry and arithmetic of a checkpoint, read from config.json or from GGUF metadata.
// Owner: value type.
// Thread: any.
// Invariant: every number lies in the range check_config() allows before anything is computed from it (law 11). What we
// don't implement (biases, sliding windows, other rope types) is refused by its name, never ignored.
// Fields: docs/models.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/ids.h"
#include "files/gguf.h"

namespace levada::model {

struct RopeConfig {
  enum class Kind : std::uint8_t { kDefault, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kDefault;
  double theta = 10000;
  double factor = 1;
  double original_context = 0;                       // llama3, yarn
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: round the borders of the ramp
  double attention_factor = 1;                       // yarn: multiplies cosines and sines
  std::vector<float> divisors;                       // GGUF rope_freqs: one per frequency; empty: none
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen3"
  std::int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0, vocabulary = 0;
  std::int64_t context = 0;
  float norm_eps = 0;
  bool tied = false;
  bool qk_norm = false;  // qwen3
  // Rows of attn_q and attn_k are stored pair by pair (GGUF llama) instead of half by half.
  bool paired_rows = false;
  // The matrices of the layers may be stored as float8_e4m3 with a scale for each block of 128 x 128 (Hugging Face's "fp8").
  bool fp8_blocks = false;
  // The tensors must have scales for a float8 KV cache (compressed-tensors' kv_cache_scheme).
  bool kv_scales = false;
  RopeConfig rope;
  std::vector<core::Token> eos;
  // Everything that changes the result besides the weights, for the cache identity.
  std::string identity() const;
};

// kInvalidArgument naming file, field, value and limit; fields as config.json or as GGUF metadata calls them.
Status check_config(const ModelConfig& config, const std::string& file, bool gguf);
// "FILE: FIELD: WHAT", the form of every fault of a model file.
Status config_fault(const std::string& file, const std::string& field, const std::string& what);
Status unsupported_architecture(const std::string& file, const std::string& field, const std::string& name);

// config.json and generation_config.json of a Hugging Face folder.
Result<ModelConfig> read_hf_config(const std::filesystem::path& folder);
Result<ModelConfig> read_gguf_config(const files::GgufFile& gguf, const std::string& file);

// YaRN's factor on cosines and sines when a checkpoint gives none.
double default_yarn_attention_factor(double factor);

}  // namespace levada::model
