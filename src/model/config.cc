#include "model/config.h"

#include <cmath>

namespace levada::model {
namespace {

struct Limit {
  const char* field;
  std::int64_t value, min, max;
};

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

Status check_config(const ModelConfig& config, const std::string& file) {
  const Limit limits[] = {
      {"hidden_size", config.hidden, 1, 1 << 20},     {"num_hidden_layers", config.layers, 1, 1024},
      {"num_attention_heads", config.heads, 1, 1024}, {"num_key_value_heads", config.kv_heads, 1, config.heads},
      {"head_dim", config.head_dim, 2, 1024},         {"intermediate_size", config.intermediate, 1, 1 << 24},
      {"vocab_size", config.vocabulary, 1, 1 << 24},  {"max_position_embeddings", config.context, 1, 1 << 24},
  };
  for (const Limit& limit : limits) {
    if (limit.value < limit.min || limit.value > limit.max) {
      return invalid_argument(file + ": " + std::to_string(limit.value) + " is not between " +
                                  std::to_string(limit.min) + " and " + std::to_string(limit.max),
                              limit.field);
    }
  }
  if (config.heads % config.kv_heads != 0) {
    return invalid_argument(file + ": " + std::to_string(config.kv_heads) + " key/value heads do not divide " +
                                std::to_string(config.heads) + " attention heads",
                            "num_key_value_heads");
  }
  if (config.head_dim % 2 != 0) {
    return invalid_argument(file + ": " + std::to_string(config.head_dim) + " is odd: rotary pairs need an even size",
                            "head_dim");
  }
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return invalid_argument(file + ": must lie between 0 and 1", "rms_norm_eps");
  }
  for (core::Token id : config.eos) {
    if (id < 0 || id >= config.vocabulary) {
      return invalid_argument(
          file + ": id " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(config.vocabulary),
          "eos_token_id");
    }
  }
  const RopeConfig& rope = config.rope;
  if (!(rope.theta > 1 && rope.theta < 1e12)) return invalid_argument(file + ": must lie above 1", "rope_theta");
  if (!(rope.factor >= 1 && rope.factor < 1e6)) return invalid_argument(file + ": must be at least 1", "rope factor");
  if (rope.kind == RopeConfig::Kind::kLlama3 &&
      !(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor && rope.original_context >= 1)) {
    return invalid_argument(file + ": llama3 scaling needs 0 < low_freq_factor < high_freq_factor", "rope_scaling");
  }
  if (rope.kind == RopeConfig::Kind::kYarn &&
      !(rope.beta_slow > 0 && rope.beta_fast > rope.beta_slow && rope.original_context >= 1 &&
        rope.attention_factor > 0 && rope.attention_factor < 100)) {
    return invalid_argument(file + ": yarn scaling needs 0 < beta_slow < beta_fast", "rope_scaling");
  }
  return {};
}

Status unsupported_architecture(const std::string& file, const std::string& name) {
  return invalid_argument(file + ": architecture \"" + name + "\" is not supported; supported are llama and qwen3",
                          "model_type");
}

double default_yarn_attention_factor(double factor) { return factor > 1 ? 0.1 * std::log(factor) + 1 : 1; }

}  // namespace levada::model
