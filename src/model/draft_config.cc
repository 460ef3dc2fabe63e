#include "model/draft_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "model/eagle_config.h"
#include "model/json_fields.h"

namespace levada::model {
namespace {

using Json = nlohmann::ordered_json;

Status out_of_range(const std::string& where, const char* field, std::int64_t value, std::int64_t low,
                    std::int64_t high) {
  return invalid_argument(
      where + ": " + std::to_string(value) + " is not between " + std::to_string(low) + " and " + std::to_string(high),
      field);
}

// dflash_config first, then the top level, as SGLang looks.
class Fields {
 public:
  Fields(const nlohmann::json& top, const std::string& file)
      : top_(top, file),
        nested_json_(top_.object("dflash_config")),
        nested_(nested_json_ != nullptr ? *nested_json_ : empty_, file) {}

  model::JsonFields& of(const char* key) { return nested_.has(key) ? nested_ : top_; }
  bool has(const char* key) { return of(key).has(key); }
  std::int64_t integer(const char* key, std::optional<std::int64_t> fallback = {}) {
    return of(key).integer(key, fallback);
  }
  double number(const char* key, std::optional<double> fallback = {}) { return of(key).number(key, fallback); }
  const nlohmann::json* nested_json() const { return nested_json_; }
  model::JsonFields& top() { return top_; }
  Status status() const { return top_.status().ok() ? nested_.status() : top_.status(); }

  // What would change the maths and isn't built.
  void refuse_unknown_maths() {
    for (const char* key : {"selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size",
                            "final_logit_softcapping", "attention_value_scale", "shift_label", "pure_draft_prefix_len",
                            "gru_hidden_dim", "emb_dim", "projector_type", "is_causal"}) {
      if (has(key)) of(key).refuse(key, "drafts with this feature are not supported");
    }
    for (const char* key : {"attention_sink_bias", "use_gemma_norm"}) {
      if (of(key).boolean(key, false)) of(key).refuse(key, "drafts with this feature are not supported");
    }
    if (number("output_multiplier", 1) != 1) of("output_multiplier").refuse("output_multiplier", "must be 1");
    if (top_.number("attention_dropout", 0) != 0) top_.refuse("attention_dropout", "must be 0");
    if (top_.text("hidden_act", "silu") != "silu") top_.refuse("hidden_act", "must be \"silu\"");
  }

 private:
  const nlohmann::json empty_ = nlohmann::json::object();
  model::JsonFields top_;
  const nlohmann::json* nested_json_;
  model::JsonFields nested_;
};

Status read_layer_types(const nlohmann::json& json, const std::string& file, DraftConfig& config) {
  config.sliding.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(config.layers, 0, 1024)), false);
  const auto types = json.find("layer_types");
  if (types == json.end() || types->is_null()) return {};
  if (!types->is_array() || types->size() != config.sliding.size()) {
    return invalid_argument(file + ": must name a type for each of the " + std::to_string(config.layers) + " layers",
                            "layer_types");
  }
  for (std::size_t i = 0; i < types->size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    if (type != "full_attention" && type != "sliding_attention") {
      return invalid_argument(
          file + ": layer " + std::to_string(i) + " must be \"full_attention\" or \"sliding_attention\"",
          "layer_types");
    }
    config.sliding[i] = type == "sliding_attention";
  }
  return {};
}

Status read_layer_ids(const nlohmann::json* nested, const nlohmann::json& top, const std::string& file,
                      DraftConfig& config) {
  const nlohmann::json* ids = nullptr;
  for (const nlohmann::json* object : {&top, nested}) {
    if (object == nullptr) continue;
    if (const auto it = object->find("target_layer_ids"); it != object->end() && !it->is_null()) ids = &*it;
  }
  if (ids == nullptr) {
    if (config.num_target_layers < 5 || config.layers < 1) return {};  // check() names what is wrong
    config.target_layer_ids = default_target_layer_ids(config.num_target_layers, config.layers);
    return {};
  }
  if (!ids->is_array() || ids->empty() || ids->size() > 256 ||
      !std::all_of(ids->begin(), ids->end(), [](const auto& id) { return id.is_number_integer(); })) {
    return invalid_argument(file + ": must be a list of 1 to 256 layer numbers", "target_layer_ids");
  }
  config.target_layer_ids = ids->get<std::vector<std::int64_t>>();
  return {};
}

Status check_layer_ids(const DraftConfig& c, const std::string& where) {
  if (c.target_layer_ids.empty() || c.target_layer_ids.size() > 256) {
    return invalid_argument(where + ": must name 1 to 256 layers of the target", "target_layer_ids");
  }
  std::set<std::int64_t> seen;
  for (std::int64_t id : c.target_layer_ids) {
    // The last layer's output feeds the head itself: a draft that saw it would copy.
    if (id < 0 || id > c.num_target_layers - 2) {
      return out_of_range(where, "target_layer_ids", id, 0, c.num_target_layers - 2);
    }
    if (!seen.insert(id).second) {
      return invalid_argument(where + ": layer " + std::to_string(id) + " is named twice", "target_layer_ids");
    }
  }
  return {};
}

}  // namespace

double read_draft_theta(JsonFields& fields, const std::string& file, Status& status) {
  double theta = fields.number("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* object = fields.object(key);
    if (object == nullptr) continue;
    JsonFields rope(*object, file);
    const std::string kind = rope.text("rope_type", rope.text("type", "default"));
    if (kind != "default") rope.refuse("rope_type", "only \"default\" is supported, got \"" + kind + "\"");
    theta = rope.number("rope_theta", theta);
    if (status.ok()) status = rope.status();
  }
  return theta;
}

std::string_view to_string(DraftKind kind) { return kind == DraftKind::kEagle3 ? "EAGLE3" : "DFLASH"; }

std::int64_t DraftConfig::parameters() const {
  if (kind == DraftKind::kEagle3) return eagle_parameters(*this);
  const std::int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  const std::int64_t attention = 2 * q * hidden + 2 * kv * hidden + 2 * head_dim;
  const std::int64_t bias = attention_bias ? q + 2 * kv + hidden : 0;
  return features() * hidden + 2 * hidden + layers * (attention + bias + 3 * intermediate * hidden + 2 * hidden);
}

std::vector<std::int64_t> default_target_layer_ids(std::int64_t target_layers, std::int64_t draft_layers) {
  if (draft_layers == 1) return {target_layers / 2};
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < draft_layers; ++i) {
    // 1 + i * span / gaps in whole numbers, halves to the even neighbour.
    const std::int64_t gaps = draft_layers - 1, product = i * (target_layers - 4), floor = product / gaps;
    const std::int64_t twice = 2 * (product % gaps);
    const std::int64_t below = 1 + floor;
    ids.push_back(below + (twice > gaps || (twice == gaps && below % 2 != 0) ? 1 : 0));
  }
  return ids;
}

Status check(const DraftConfig& c, const std::string& where) {
  const bool eagle = c.kind == DraftKind::kEagle3;
  struct Range {
    const char* field;
    std::int64_t value, low, high;
  };
  for (const Range& r :
       {Range{"hidden_size", c.hidden, 1, 65536}, Range{"intermediate_size", c.intermediate, 1, 1 << 20},
        Range{"num_hidden_layers", c.layers, 1, eagle ? 1 : 64}, Range{"num_attention_heads", c.heads, 1, 1024},
        Range{"num_key_value_heads", c.kv_heads, 1, c.heads}, Range{"head_dim", c.head_dim, 2, 1024},
        Range{"vocab_size", c.vocabulary, 2, 1 << 24}, Range{"block_size", c.block_size, 2, 256},
        Range{"num_target_layers", c.num_target_layers, eagle ? 0 : 2, 4096},
        Range{"mask_token_id", c.mask_token_id, eagle ? -1 : 0, c.vocabulary - 1},
        Range{"draft_vocab_size", c.draft_vocabulary, eagle ? 1 : 0, c.vocabulary}}) {
    if (r.value < r.low || r.value > r.high) return out_of_range(where, r.field, r.value, r.low, r.high);
  }
  if (c.heads % c.kv_heads != 0) {
    return invalid_argument(where + ": " + std::to_string(c.heads) + " heads are no multiple of " +
                                std::to_string(c.kv_heads) + " key heads",
                            "num_key_value_heads");
  }
  if (c.head_dim % 2 != 0) return invalid_argument(where + ": must be even", "head_dim");
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    return invalid_argument(where + ": must lie between 0 and 1", "rms_norm_eps");
  if (!(c.rope_theta >= 1 && c.rope_theta < 1e12)) return invalid_argument(where + ": must be 1 to 1e12", "rope_theta");
  if (static_cast<std::int64_t>(c.sliding.size()) != c.layers) {
    return invalid_argument(where + ": must name a type for each layer", "layer_types");
  }
  const bool slides = std::find(c.sliding.begin(), c.sliding.end(), true) != c.sliding.end();
  if (slides && (c.sliding_window < 1 || c.sliding_window > (1 << 24))) {
    return out_of_range(where, "sliding_window", c.sliding_window, 1, 1 << 24);
  }
  if (c.dtype != "bfloat16" && c.dtype != "float32") {
    return invalid_argument(where + ": must be \"bfloat16\" or \"float32\"", "dtype");
  }
  if (!eagle) return check_layer_ids(c, where);
  if (c.target_layer_ids.empty()) return {};  // for_target() fills them in
  if (!std::is_sorted(c.target_layer_ids.begin(), c.target_layer_ids.end())) {
    return invalid_argument(where + ": must ascend, as the layers are captured", "eagle_aux_hidden_state_layer_ids");
  }
  return c.num_target_layers == 0 ? Status() : check_layer_ids(c, where);
}

Result<DraftConfig> read_draft_config(const std::filesystem::path& path) {
  const std::string file = path.string();
  LEVADA_ASSIGN_OR_RETURN(const nlohmann::json json, model::read_json_object(file));
  if (is_eagle_config(json)) return read_eagle_config(json, file);
  Fields fields(json, file);
  model::JsonFields& top = fields.top();
  DraftConfig c;
  c.hidden = top.integer("hidden_size");
  c.intermediate = top.integer("intermediate_size");
  c.layers = top.integer("num_hidden_layers");
  c.heads = top.integer("num_attention_heads");
  c.kv_heads = top.integer("num_key_value_heads", c.heads);
  c.head_dim = top.integer("head_dim", c.heads > 0 ? c.hidden / c.heads : 0);
  c.vocabulary = top.integer("vocab_size");
  c.block_size = fields.integer("block_size", 16);
  c.mask_token_id = fields.integer("mask_token_id");
  c.num_target_layers = fields.integer("num_target_layers");
  c.norm_eps = top.number("rms_norm_eps", 1e-6);
  c.attention_bias = top.boolean("attention_bias", false);
  c.max_positions = top.integer("max_position_embeddings", 0);
  c.dtype = top.text("dtype", top.text("torch_dtype", "bfloat16"));
  c.sliding_window = top.integer("sliding_window", 0);
  fields.refuse_unknown_maths();
  Status rope;
  c.rope_theta = read_draft_theta(top, file, rope);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_RETURN_IF_ERROR(rope);
  LEVADA_RETURN_IF_ERROR(read_layer_types(json, file, c));
  LEVADA_RETURN_IF_ERROR(read_layer_ids(fields.nested_json(), json, file, c));
  if (std::find(c.sliding.begin(), c.sliding.end(), true) == c.sliding.end()) c.sliding_window = 0;
  LEVADA_RETURN_IF_ERROR(check(c, file));
  return c;
}

std::string draft_config_json(const DraftConfig& c) {
  if (c.kind == DraftKind::kEagle3) return eagle_config_json(c);
  Json types = Json::array();
  for (bool slides : c.sliding) types.push_back(slides ? "sliding_attention" : "full_attention");
  const bool slides = c.sliding_window > 0;
  Json json{
      {"architectures", {"DFlashDraftModel"}},
      {"auto_map", {{"AutoModel", "dflash.DFlashDraftModel"}}},
      {"model_type", "qwen3"},
      {"block_size", c.block_size},
      {"dflash_config", {{"mask_token_id", c.mask_token_id}, {"target_layer_ids", c.target_layer_ids}}},
      {"num_hidden_layers", c.layers},
      {"num_target_layers", c.num_target_layers},
      {"hidden_size", c.hidden},
      {"intermediate_size", c.intermediate},
      {"num_attention_heads", c.heads},
      {"num_key_value_heads", c.kv_heads},
      {"head_dim", c.head_dim},
      {"hidden_act", "silu"},
      {"rms_norm_eps", c.norm_eps},
      {"rope_theta", c.rope_theta},
      {"rope_scaling", nullptr},
      {"rope_parameters", {{"rope_theta", c.rope_theta}, {"rope_type", "default"}}},
      {"attention_bias", c.attention_bias},
      {"attention_dropout", 0.0},
      {"max_position_embeddings", c.max_positions},
      {"vocab_size", c.vocabulary},
      {"tie_word_embeddings", false},
      {"layer_types", types},
      {"use_sliding_window", slides},
      {"sliding_window", slides ? Json(c.sliding_window) : Json(nullptr)},
      {"max_window_layers", c.layers},
      {"dtype", c.dtype},
  };
  return json.dump(2) + "\n";
}

}  // namespace levada::model
