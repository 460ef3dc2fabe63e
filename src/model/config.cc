#include "model/config.h"

#include <cmath>
#include <cstdio>

#include "files/printed.h"

namespace levada::model {
namespace {

// Names of one property in config.json and, under the architecture's prefix, in GGUF metadata.
struct FieldName {
  const char* hf;
  const char* gguf;
};

// Checks one file's configuration and names what is wrong as that file does.
class ConfigCheck {
 public:
  ConfigCheck(const ModelConfig& config, const std::string& file, bool gguf)
      : config_(config), file_(file), gguf_(gguf) {}

  Status sizes() const;
  Status rope() const;

 private:
  Status fault(FieldName name, const std::string& what) const {
    return config_fault(file_, gguf_ ? config_.architecture + "." + name.gguf : name.hf, what);
  }
  Status between(FieldName name, double value, double min, double max) const {
    if (value >= min && value <= max) return {};
    return fault(name, shown(value) + " is not between " + shown(min) + " and " + shown(max));
  }
  // Whole numbers in full, others as short as they can be.
  static std::string shown(double value) {
    char text[32];
    const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
    std::snprintf(text, sizeof text, whole ? "%.0f" : "%g", value);
    return text;
  }

  const ModelConfig& config_;
  const std::string& file_;
  bool gguf_;
};

Status ConfigCheck::sizes() const {
  const ModelConfig& c = config_;
  const struct {
    FieldName name;
    std::int64_t value, min, max;
  } limits[] = {
      {{"hidden_size", "embedding_length"}, c.hidden, 1, 1 << 20},
      {{"num_hidden_layers", "block_count"}, c.layers, 1, 1024},
      {{"num_attention_heads", "attention.head_count"}, c.heads, 1, 1024},
      {{"num_key_value_heads", "attention.head_count_kv"}, c.kv_heads, 1, c.heads},
      {{"head_dim", "attention.key_length"}, c.head_dim, 2, 1024},
      {{"intermediate_size", "feed_forward_length"}, c.intermediate, 1, 1 << 24},
      {{"vocab_size", "vocab_size"}, c.vocabulary, 1, 1 << 24},
      {{"max_position_embeddings", "context_length"}, c.context, 1, 1 << 24},
  };
  for (const auto& limit : limits) {
    if (limit.value >= limit.min && limit.value <= limit.max) continue;
    return fault(limit.name, std::to_string(limit.value) + " is not between " + std::to_string(limit.min) + " and " +
                                 std::to_string(limit.max));
  }
  if (c.heads % c.kv_heads != 0) {
    return fault({"num_key_value_heads", "attention.head_count_kv"},
                 std::to_string(c.kv_heads) + " does not divide the " + std::to_string(c.heads) + " attention heads");
  }
  if (c.head_dim % 2 != 0) {
    return fault({"head_dim", "attention.key_length"},
                 std::to_string(c.head_dim) + " is odd: rotary pairs need an even size");
  }
  if (!(c.norm_eps > 0 && c.norm_eps < 1)) {
    return fault({"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
                 shown(c.norm_eps) + " does not lie between 0 and 1");
  }
  for (core::Token id : c.eos) {
    if (id >= 0 && id < c.vocabulary) continue;
    return config_fault(file_, gguf_ ? "tokenizer.ggml.eos_token_id" : "eos_token_id",
                        "id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(c.vocabulary));
  }
  return {};
}

Status ConfigCheck::rope() const {
  const RopeConfig& r = config_.rope;
  LEVADA_RETURN_IF_ERROR(between({"rope_theta", "rope.freq_base"}, r.theta, 2, 1e12));
  LEVADA_RETURN_IF_ERROR(between({"rope_scaling.factor", "rope.scaling.factor"}, r.factor, 1, 1e6));
  if (r.kind == RopeConfig::Kind::kLlama3 || r.kind == RopeConfig::Kind::kYarn) {
    LEVADA_RETURN_IF_ERROR(
        between({"rope_scaling.original_max_position_embeddings", "rope.scaling.original_context_length"},
                r.original_context, 1, 1 << 24));
  }
  const FieldName scaling{"rope_scaling", "rope.scaling"};
  if (r.kind == RopeConfig::Kind::kLlama3 && !(r.low_freq_factor > 0 && r.high_freq_factor > r.low_freq_factor)) {
    return fault(scaling, "llama3 needs 0 < low_freq_factor < high_freq_factor, got " + shown(r.low_freq_factor) +
                              " and " + shown(r.high_freq_factor));
  }
  if (r.kind == RopeConfig::Kind::kYarn) {
    if (!(r.beta_slow > 0 && r.beta_fast > r.beta_slow)) {
      return fault(scaling,
                   "yarn needs 0 < beta_slow < beta_fast, got " + shown(r.beta_slow) + " and " + shown(r.beta_fast));
    }
    return between({"rope_scaling.attention_factor", "rope.scaling.attn_factor"}, r.attention_factor, 1e-3, 100);
  }
  return {};
}

}  // namespace

std::string ModelConfig::identity() const {
  std::string text = architecture;
  for (std::int64_t number : {hidden, layers, heads, kv_heads, head_dim, intermediate, vocabulary}) {
    text += ";" + std::to_string(number);
  }
  // Hex floats: two configurations that differ in the last bit are different.
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, ";eps=%a;rope=%d,%a,%a,%a,%a,%a,%a,%a,%a;qk_norm=%d;tied=%d", norm_eps,
                static_cast<int>(rope.kind), rope.theta, rope.factor, rope.original_context, rope.low_freq_factor,
                rope.high_freq_factor, rope.beta_fast, rope.beta_slow, rope.attention_factor, qk_norm, tied);
  return text + buffer;
}

Status check_config(const ModelConfig& config, const std::string& file, bool gguf) {
  const ConfigCheck check(config, file, gguf);
  LEVADA_RETURN_IF_ERROR(check.sizes());
  return check.rope();
}

Status config_fault(const std::string& file, const std::string& field, const std::string& what) {
  return invalid_argument(file + ": " + field + ": " + what);
}

Status unsupported_architecture(const std::string& file, const std::string& field, const std::string& name) {
  return config_fault(file, field, files::in_quotes(name) + " is not supported; supported are llama and qwen3");
}

double default_yarn_attention_factor(double factor) { return factor > 1 ? 0.1 * std::log(factor) + 1 : 1; }

}  // namespace levada::model
