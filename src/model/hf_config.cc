#include "model/config.h"
#include "model/json_fields.h"

namespace levada::model {
namespace {

void read_yarn(JsonFields& fields, RopeConfig& rope) {
  rope.beta_fast = fields.number("beta_fast", 32.0);
  rope.beta_slow = fields.number("beta_slow", 1.0);
  rope.truncate = fields.boolean("truncate", true);
  double factor = default_yarn_attention_factor(rope.factor);
  const double mscale = fields.number("mscale", 0.0), all = fields.number("mscale_all_dim", 0.0);
  if (mscale != 0 && all != 0) {
    factor = (1 + mscale * (default_yarn_attention_factor(rope.factor) - 1)) /
             (1 + all * (default_yarn_attention_factor(rope.factor) - 1));
  }
  rope.attention_factor = fields.number("attention_factor", factor);
}

// One object with rope_type (or `type`) and its numbers; both generations of configs use it.
Status read_scaling(const nlohmann::json& object, const std::string& file, const std::string& key, std::int64_t context,
                    RopeConfig& rope) {
  JsonFields fields(object, file, key + ".");
  const std::string type = fields.text("rope_type", fields.text("type", "default"));
  rope.theta = fields.number("rope_theta", rope.theta);
  if (fields.number("partial_rotary_factor", 1.0) != 1.0) {
    fields.refuse("partial_rotary_factor", "only full rotation (1.0) is supported");
  }
  rope.original_context = fields.number("original_max_position_embeddings", static_cast<double>(context));
  if (type == "default") return fields.status();
  rope.factor = fields.number("factor");
  if (type == "linear") {
    rope.kind = RopeConfig::Kind::kLinear;
  } else if (type == "llama3") {
    rope.kind = RopeConfig::Kind::kLlama3;
    rope.low_freq_factor = fields.number("low_freq_factor");
    rope.high_freq_factor = fields.number("high_freq_factor");
  } else if (type == "yarn") {
    rope.kind = RopeConfig::Kind::kYarn;
    read_yarn(fields, rope);
  } else {
    fields.refuse("rope_type", "\"" + type + "\" is not supported; supported are default, linear, llama3 and yarn");
  }
  return fields.status();
}

Status read_rope(JsonFields& fields, const std::string& file, ModelConfig& config) {
  config.rope.theta = fields.number("rope_theta", 10000.0);
  if (fields.number("partial_rotary_factor", 1.0) != 1.0) {
    fields.refuse("partial_rotary_factor", "only full rotation (1.0) is supported");
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* object = fields.object(key);
    if (object == nullptr) continue;
    for (const auto& [name, value] : object->items()) {
      if (value.is_object()) fields.refuse(key, "\"" + name + "\": rotations per kind of layer are not supported");
    }
    LEVADA_RETURN_IF_ERROR(read_scaling(*object, file, key, config.context, config.rope));
  }
  return fields.status();
}

// What would change the result and isn't implemented.
void refuse_unsupported(JsonFields& fields, const nlohmann::json& object, std::int64_t layers) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (fields.boolean(key, false)) fields.refuse(key, "biases are not supported; it must be false");
  }
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu") fields.refuse("hidden_act", "\"" + activation + "\" is not supported; silu is");
  const bool uses_window = fields.boolean("use_sliding_window", false) && fields.has("sliding_window");
  if (uses_window && fields.integer("max_window_layers", 0) < layers) {
    fields.refuse("use_sliding_window", "sliding-window attention is not supported");
  }
  const auto types = object.find("layer_types");
  if (types != object.end() && types->is_array()) {
    for (const nlohmann::json& type : *types) {
      if (type != "full_attention") fields.refuse("layer_types", type.dump() + " is not supported; full_attention is");
    }
  }
}

// Scales for a float8 KV cache and no quantised weight: the one form of "compressed-tensors" that is read.
Status read_kv_cache_scheme(const nlohmann::json& object, JsonFields& own, const std::string& file,
                            ModelConfig& config) {
  const auto groups = object.find("config_groups");
  if (groups != object.end() && !groups->is_null() && !groups->empty()) {
    own.refuse("config_groups",
               "weights quantised by compressed-tensors are not supported; a kv_cache_scheme alone is");
  }
  const nlohmann::json* const scheme = own.object("kv_cache_scheme");
  LEVADA_RETURN_IF_ERROR(own.status());
  if (scheme == nullptr) return {};
  JsonFields fields(*scheme, file, "quantization_config.kv_cache_scheme.");
  if (fields.integer("num_bits") != 8) fields.refuse("num_bits", "8 is supported");
  if (fields.text("type") != "float") fields.refuse("type", "float is supported");
  if (fields.text("strategy", "tensor") != "tensor")
    fields.refuse("strategy", "one scale for each layer, tensor, is supported");
  if (!fields.boolean("symmetric", true)) fields.refuse("symmetric", "zero points are not supported");
  config.kv_scales = fields.status().ok() && !fields.boolean("dynamic", false);
  return fields.status();
}

// Of the forms of quantised checkpoints, "fp8" in blocks of 128 x 128 with activations quantised as they come.
Status read_quantization(JsonFields& fields, const std::string& file, ModelConfig& config) {
  const nlohmann::json* const object = fields.object("quantization_config");
  if (object == nullptr) return {};
  JsonFields own(*object, file, "quantization_config.");
  const auto only = [&](const char* key, const std::string& found, const std::string& supported) {
    if (found != supported) own.refuse(key, "\"" + found + "\" is not supported; " + supported + " is");
  };
  const std::string method = own.text("quant_method", "");
  if (method == "compressed-tensors") return read_kv_cache_scheme(*object, own, file, config);
  only("quant_method", method, "fp8");
  only("fmt", own.text("fmt", "e4m3"), "e4m3");
  only("activation_scheme", own.text("activation_scheme", "dynamic"), "dynamic");
  const auto block = object->find("weight_block_size");
  only("weight_block_size", block == object->end() ? "absent" : block->dump(), "[128,128]");
  config.fp8_blocks = own.status().ok();
  return own.status();
}

// An id or a list of ids.
Status read_eos(const nlohmann::json& object, const std::string& file, std::vector<core::Token>& eos) {
  const auto found = object.find("eos_token_id");
  if (found == object.end() || found->is_null()) return {};
  const nlohmann::json list = found->is_array() ? *found : nlohmann::json::array({*found});
  std::vector<core::Token> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return config_fault(file, "eos_token_id", "must be an id or a list of ids");
    }
    ids.push_back(id.get<core::Token>());
  }
  eos = std::move(ids);
  return {};
}

}  // namespace

Result<ModelConfig> read_hf_config(const std::filesystem::path& folder) {
  const std::string file = (folder / "config.json").string();
  LEVADA_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(file));
  JsonFields fields(object, file);
  ModelConfig config;
  config.architecture = fields.text("model_type");
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (config.architecture != "llama" && config.architecture != "qwen3") {
    return unsupported_architecture(file, "model_type", config.architecture);
  }
  config.qk_norm = config.architecture == "qwen3";
  config.hidden = fields.integer("hidden_size");
  config.layers = fields.integer("num_hidden_layers");
  config.heads = fields.integer("num_attention_heads");
  config.kv_heads = fields.integer("num_key_value_heads", config.heads);
  config.intermediate = fields.integer("intermediate_size");
  config.vocabulary = fields.integer("vocab_size");
  config.context = fields.integer("max_position_embeddings", config.qk_norm ? 32768 : 2048);
  config.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 1e-6));
  config.tied = fields.boolean("tie_word_embeddings", false);
  const std::int64_t divided = config.heads > 0 ? config.hidden / config.heads : 0;
  config.head_dim = fields.integer("head_dim", config.qk_norm ? 128 : divided);
  refuse_unsupported(fields, object, config.layers);
  LEVADA_RETURN_IF_ERROR(read_quantization(fields, file, config));
  LEVADA_RETURN_IF_ERROR(read_rope(fields, file, config));
  LEVADA_RETURN_IF_ERROR(read_eos(object, file, config.eos));

  const std::string generation = (folder / "generation_config.json").string();
  if (std::filesystem::exists(generation)) {
    LEVADA_ASSIGN_OR_RETURN(const nlohmann::json defaults, read_json_object(generation));
    LEVADA_RETURN_IF_ERROR(read_eos(defaults, generation, config.eos));
  }
  LEVADA_RETURN_IF_ERROR(check_config(config, file, /*gguf=*/false));
  return config;
}

}  // namespace levada::model
