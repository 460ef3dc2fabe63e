#include <algorithm>

#include "files/gguf.h"
#include "model/config.h"

namespace levada::model {
namespace {

// Metadata under the architecture's prefix, with the first failure kept.
class GgufFields {
 public:
  GgufFields(const files::GgufFile& gguf, std::string prefix, std::string file)
      : gguf_(gguf), prefix_(std::move(prefix)), file_(std::move(file)) {}

  std::int64_t integer(const std::string& key, std::optional<std::int64_t> fallback = {}) {
    const auto found = gguf_.integer(prefix_ + key);
    if (found) return *found;
    if (fallback && !present(key)) return *fallback;
    fail(key, present(key) ? "must be one whole number" : "is missing");
    return 1;
  }
  double number(const std::string& key, std::optional<double> fallback = {}) {
    const auto found = gguf_.number(prefix_ + key);
    if (found) return *found;
    if (fallback && !present(key)) return *fallback;
    fail(key, present(key) ? "must be a number" : "is missing");
    return 1;
  }
  std::string text(const std::string& key, const std::string& fallback) {
    const auto found = gguf_.string(prefix_ + key);
    return found ? std::string(*found) : fallback;
  }
  void fail(const std::string& key, const std::string& why) {
    if (status_.ok()) status_ = config_fault(file_, prefix_ + key, why);
  }
  const Status& status() const { return status_; }

 private:
  bool present(const std::string& key) const {
    const std::vector<std::string> keys = gguf_.keys();
    return std::find(keys.begin(), keys.end(), prefix_ + key) != keys.end();
  }
  const files::GgufFile& gguf_;
  std::string prefix_, file_;
  Status status_;
};

void read_rope(GgufFields& fields, RopeConfig& rope, std::int64_t context) {
  rope.theta = fields.number("rope.freq_base", 10000.0);
  const std::string type = fields.text("rope.scaling.type", "none");
  rope.original_context = fields.number("rope.scaling.original_context_length", static_cast<double>(context));
  const double old_linear = fields.number("rope.scale_linear", 1.0);
  if (type == "none" && old_linear == 1.0) return;
  rope.factor = fields.number("rope.scaling.factor", old_linear);
  if (type == "linear" || type == "none") {
    rope.kind = RopeConfig::Kind::kLinear;
  } else if (type == "yarn") {
    rope.kind = RopeConfig::Kind::kYarn;
    rope.beta_fast = fields.number("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = fields.number("rope.scaling.yarn_beta_slow", 1.0);
    rope.attention_factor = fields.number("rope.scaling.attn_factor", 1.0) * default_yarn_attention_factor(rope.factor);
  } else {
    fields.fail("rope.scaling.type", "\"" + type + "\" is not supported; supported are none, linear and yarn");
  }
}

void refuse_unsupported(GgufFields& fields) {
  if (fields.integer("expert_count", 0) != 0) fields.fail("expert_count", "mixtures of experts are not supported");
  if (fields.integer("attention.sliding_window", 0) != 0) {
    fields.fail("attention.sliding_window", "sliding-window attention is not supported");
  }
}

}  // namespace

Result<ModelConfig> read_gguf_config(const files::GgufFile& gguf, const std::string& file) {
  ModelConfig config;
  const auto architecture = gguf.string("general.architecture");
  if (!architecture) return config_fault(file, "general.architecture", "is missing");
  config.architecture = *architecture;
  if (config.architecture != "llama" && config.architecture != "qwen3") {
    return unsupported_architecture(file, "general.architecture", config.architecture);
  }
  if (gguf.integer("split.count").value_or(1) > 1) {
    return config_fault(file, "split.count", "models split over several GGUF files are not supported; merge them");
  }
  config.qk_norm = config.architecture == "qwen3";
  config.paired_rows = config.architecture == "llama";  // the converter permutes llama only
  GgufFields fields(gguf, config.architecture + ".", file);
  config.hidden = fields.integer("embedding_length");
  config.layers = fields.integer("block_count");
  config.heads = fields.integer("attention.head_count");
  config.kv_heads = fields.integer("attention.head_count_kv", config.heads);
  config.intermediate = fields.integer("feed_forward_length");
  config.context = fields.integer("context_length");
  config.norm_eps = static_cast<float>(fields.number("attention.layer_norm_rms_epsilon"));
  config.head_dim = fields.integer("attention.key_length", config.heads > 0 ? config.hidden / config.heads : 0);
  if (fields.integer("attention.value_length", config.head_dim) != config.head_dim) {
    fields.fail("attention.value_length", "keys and values of different sizes are not supported");
  }
  if (fields.integer("rope.dimension_count", config.head_dim) != config.head_dim) {
    fields.fail("rope.dimension_count", "only rotation of the whole head is supported");
  }
  refuse_unsupported(fields);
  read_rope(fields, config.rope, config.context);
  LEVADA_RETURN_IF_ERROR(fields.status());

  const files::TensorInfo* embedding = gguf.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return data_loss(file + ": tensor token_embd.weight is missing or not a matrix");
  }
  config.vocabulary = embedding->shape[0];
  config.tied = gguf.find("output.weight") == nullptr;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const auto id = gguf.integer(key);
    if (!id) continue;
    if (*id < 0 || *id > INT32_MAX) return config_fault(file, key, std::to_string(*id) + " is not an id");
    if (std::find(config.eos.begin(), config.eos.end(), *id) == config.eos.end()) {
      config.eos.push_back(static_cast<core::Token>(*id));
    }
  }
  LEVADA_RETURN_IF_ERROR(check_config(config, file, /*gguf=*/true));
  return config;
}

}  // namespace levada::model
