#include "model/eagle_config.h"

#include <algorithm>

namespace levada::model {
namespace {

constexpr const char* kEagleArchitecture = "LlamaForCausalLMEagle3";
constexpr const char* kEagleLayerIds = "eagle_aux_hidden_state_layer_ids";

void refuse_other_eagles(JsonFields& fields) {
  for (const char* key : {"attention_bias", "mlp_bias", "bias", "norm_before_residual", "norm_before_fc"}) {
    if (fields.boolean(key, false)) fields.refuse(key, "EAGLE-3 drafts with this feature are not supported");
  }
  if (fields.boolean("tie_word_embeddings", false)) {
    fields.refuse("tie_word_embeddings", "an EAGLE-3 draft needs a head of its own");
  }
  if (fields.text("hidden_act", "silu") != "silu") fields.refuse("hidden_act", "must be \"silu\"");
}

Status read_eagle_layer_ids(const nlohmann::json& json, const std::string& file, DraftConfig& config) {
  const nlohmann::json* ids = nullptr;
  const auto look = [&](const nlohmann::json& object) {
    if (const auto it = object.find(kEagleLayerIds); it != object.end() && !it->is_null()) ids = &*it;
  };
  look(json);
  if (const auto nested = json.find("eagle_config"); nested != json.end() && nested->is_object()) {
    look(*nested);
    const auto uses = nested->find("use_aux_hidden_state");
    if (uses != nested->end() && *uses == false) {
      return invalid_argument(file + ": drafts that read the last layer alone are not supported",
                              "eagle_config.use_aux_hidden_state");
    }
  }
  if (ids == nullptr || (ids->is_array() && ids->empty())) return {};
  if (!ids->is_array() || !std::all_of(ids->begin(), ids->end(),
                                       [](const auto& id) { return id.is_number_integer() && id >= 0 && id < 4096; })) {
    return invalid_argument(file + ": must be a list of layer numbers", kEagleLayerIds);
  }
  config.target_layer_ids = ids->get<std::vector<std::int64_t>>();
  return {};
}

}  // namespace

bool is_eagle_config(const nlohmann::json& json) {
  const auto names = json.find("architectures");
  return names != json.end() && names->is_array() &&
         std::find(names->begin(), names->end(), kEagleArchitecture) != names->end();
}

std::vector<std::int64_t> default_eagle_layer_ids(std::int64_t target_layers) {
  return {1, target_layers / 2 - 1, target_layers - 4};
}

Result<DraftConfig> for_target(DraftConfig config, std::int64_t target_layers, const std::string& where) {
  if (config.kind != DraftKind::kEagle3) return config;
  if (config.num_target_layers == 0) config.num_target_layers = target_layers;
  if (config.target_layer_ids.empty()) {
    if (target_layers < 7) {
      return invalid_argument(where + ": must be given for a target of " + std::to_string(target_layers) +
                                  " layers: the default ones are three from 7 layers on",
                              kEagleLayerIds);
    }
    config.target_layer_ids = default_eagle_layer_ids(target_layers);
  }
  LEVADA_RETURN_IF_ERROR(check(config, where));
  return config;
}

std::int64_t eagle_parameters(const DraftConfig& c) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::int64_t attention = 2 * c.hidden * (q + 2 * kv) + q * c.hidden;
  return (c.features() + c.draft_vocabulary) * c.hidden + attention + 3 * c.intermediate * c.hidden + 4 * c.hidden;
}

Result<DraftConfig> read_eagle_config(const nlohmann::json& json, const std::string& file) {
  JsonFields fields(json, file);
  DraftConfig c;
  c.kind = DraftKind::kEagle3;
  c.hidden = fields.integer("hidden_size");
  c.intermediate = fields.integer("intermediate_size");
  c.layers = fields.integer("num_hidden_layers", 1);
  c.heads = fields.integer("num_attention_heads");
  c.kv_heads = fields.integer("num_key_value_heads", c.heads);
  c.head_dim = fields.integer("head_dim", c.heads > 0 ? c.hidden / c.heads : 0);
  c.vocabulary = fields.integer("vocab_size");
  c.draft_vocabulary = fields.integer("draft_vocab_size", c.vocabulary);
  c.num_target_layers = fields.integer("num_target_layers", 0);
  c.block_size = kEagleBlock;
  c.norm_eps = fields.number("rms_norm_eps", 1e-6);
  c.max_positions = fields.integer("max_position_embeddings", 0);
  c.dtype = fields.text("dtype", fields.text("torch_dtype", "bfloat16"));
  c.feeds_normed = fields.boolean("norm_output", false);
  c.sliding = {false};
  if (fields.integer("target_hidden_size", c.hidden) != c.hidden) {
    fields.refuse("target_hidden_size", "must be hidden_size, " + std::to_string(c.hidden));
  }
  refuse_other_eagles(fields);
  Status rope;
  c.rope_theta = read_draft_theta(fields, file, rope);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_RETURN_IF_ERROR(rope);
  LEVADA_RETURN_IF_ERROR(read_eagle_layer_ids(json, file, c));
  LEVADA_RETURN_IF_ERROR(check(c, file));
  return c;
}

std::string eagle_config_json(const DraftConfig& c) {
  nlohmann::ordered_json json{
      {"architectures", {kEagleArchitecture}},
      {"model_type", "llama"},
      {"draft_vocab_size", c.draft_vocabulary},
      {"num_hidden_layers", c.layers},
      {"hidden_size", c.hidden},
      {"intermediate_size", c.intermediate},
      {"num_attention_heads", c.heads},
      {"num_key_value_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"hidden_act", "silu"},
      {"rms_norm_eps", c.norm_eps},
      {"rope_theta", c.rope_theta},
      {"rope_scaling", nullptr},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"max_position_embeddings", c.max_positions},
      {"vocab_size", c.vocabulary},
      {"tie_word_embeddings", false},
      {"torch_dtype", c.dtype},
  };
  if (c.num_target_layers > 0) json["num_target_layers"] = c.num_target_layers;
  if (!c.target_layer_ids.empty()) {
    json["eagle_config"] = {{kEagleLayerIds, c.target_layer_ids}, {"use_aux_hidden_state", true}};
  }
  if (c.feeds_normed) json["norm_output"] = true;
  return json.dump(2) + "\n";
}

}  // namespace levada::model
