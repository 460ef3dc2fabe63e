#include "registry/ref_json.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/hex.h"
#include "registry/json_value.h"
#include "registry/ref_value.h"

namespace levada::registry {

namespace {

constexpr std::size_t kMaxFeatures = 64;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kMaxLayers = 4096;
constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::int64_t kMaxTensorBytes = std::int64_t{1} << 50;

// "tcp" of "tcp://host:port"
std::string transport_of(std::string_view url) { return std::string(url.substr(0, url.find(':'))); }

Result<std::string> required_text(Json object, std::string_view name) {
  LEVADA_ASSIGN_OR_RETURN(const std::string_view text, json_required<std::string_view>(object, name, "a string"));
  if (text.empty() || text.size() > kMaxTextBytes) {
    return invalid_argument("must have 1 to " + std::to_string(kMaxTextBytes) + " bytes", std::string(name));
  }
  return std::string(text);
}

Result<std::vector<std::int64_t>> parse_shape(Json spec, const std::string& field, DType dtype) {
  LEVADA_ASSIGN_OR_RETURN(const auto dims, json_required<simdjson::dom::array>(spec, "shape", "a list of integers"));
  if (dims.size() == 0 || dims.size() > kMaxDimensions) {
    return invalid_argument("must have 1 to " + std::to_string(kMaxDimensions) + " dimensions", field + ".shape");
  }
  std::vector<std::int64_t> shape;
  std::int64_t bytes = static_cast<std::int64_t>(bytes_of(dtype));
  for (const Json dim : dims) {
    LEVADA_ASSIGN_OR_RETURN(const std::int64_t n, json_as<std::int64_t>(dim, field + ".shape", "a list of integers"));
    if (n < 1 || n > kMaxTensorBytes / bytes) {
      return invalid_argument("describes no tensor of 1 byte to 2^50 bytes", field + ".shape");
    }
    bytes *= n;
    shape.push_back(n);
  }
  return shape;
}

Result<core::StoredTensor> parse_feature(std::string_view name, Json spec, const std::optional<Json>& checksums) {
  const std::string field = "feature_specs." + std::string(name);
  if (!spec.is_object()) return invalid_argument("must be an object", field);
  core::StoredTensor tensor;
  tensor.name = std::string(name);
  if (name.empty() || name.size() > 256) return invalid_argument("a feature's name has 1 to 256 bytes", field);
  LEVADA_ASSIGN_OR_RETURN(const std::string dtype, required_text(spec, "dtype"));
  const auto known = dtype_named(dtype);
  if (!known) return invalid_argument("no such dtype: " + dtype, field + ".dtype");
  tensor.dtype = *known;
  LEVADA_ASSIGN_OR_RETURN(tensor.shape, parse_shape(spec, field, *known));
  if (checksums) {
    if (const auto text = json_member(*checksums, name)) {
      LEVADA_ASSIGN_OR_RETURN(const auto digits, json_as<std::string_view>(*text, "checksums", "16 hex digits"));
      LEVADA_ASSIGN_OR_RETURN(tensor.checksum, parse_hex64(digits, "metadata.checksums." + tensor.name));
    }
  }
  return tensor;
}

Status parse_metadata(Json metadata, core::SampleRef& ref) {
  LEVADA_ASSIGN_OR_RETURN(const std::int64_t generation,
                          json_required<std::int64_t>(metadata, "generation", "an integer"));
  if (generation < 1 || generation > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("must be 1 to 2^31 - 1", "metadata.generation");
  }
  ref.generation = static_cast<std::uint32_t>(generation);
  if (const auto server = json_member(metadata, "server")) {
    LEVADA_ASSIGN_OR_RETURN(const auto url, json_as<std::string_view>(*server, "metadata.server", "a string"));
    ref.store_url = std::string(url.substr(0, kMaxTextBytes));
  }
  if (const auto incarnation = json_member(metadata, "incarnation")) {
    LEVADA_ASSIGN_OR_RETURN(const auto digits, json_as<std::string_view>(*incarnation, "incarnation", "16 hex digits"));
    LEVADA_ASSIGN_OR_RETURN(ref.incarnation, parse_hex64(digits, "metadata.incarnation"));
  }
  if (const auto layers = json_member(metadata, "aux_layer_ids")) {
    LEVADA_ASSIGN_OR_RETURN(const auto ids,
                            json_as<simdjson::dom::array>(*layers, "metadata.aux_layer_ids", "a list of integers"));
    if (ids.size() > kMaxLayers) return invalid_argument("too many layers", "metadata.aux_layer_ids");
    for (const Json id : ids) {
      LEVADA_ASSIGN_OR_RETURN(const std::int64_t layer,
                              json_as<std::int64_t>(id, "metadata.aux_layer_ids", "a list of integers"));
      if (layer < 0 || layer > 1'000'000) return invalid_argument("no such layer", "metadata.aux_layer_ids");
      ref.aux_layer_ids.push_back(static_cast<std::int32_t>(layer));
    }
  }
  return {};
}

// Upstream's two names of one thing.
void add_arena(const core::SampleRef& ref, nlohmann::ordered_json& metadata) {
  if (!ref.arena) return;
  nlohmann::ordered_json addresses = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < ref.tensors.size() && i < ref.arena->addresses.size(); ++i)
    addresses[ref.tensors[i].name] = ref.arena->addresses[i];
  const nlohmann::ordered_json arena = {{"session", ref.arena->session},
                                        {"control", ref.arena->control},
                                        {"addresses", addresses},
                                        {"incarnation", hex64(ref.incarnation)}};
  metadata["mooncake_nvlink"] = arena;
  metadata["mooncake_arena"] = arena;
}

// Whichever of the two names is there. REQUIRES: the ref's tensors are known.
Status parse_arena(Json metadata, core::SampleRef& ref) {
  auto arena = json_member(metadata, "mooncake_nvlink");
  if (!arena) arena = json_member(metadata, "mooncake_arena");
  if (!arena) return {};
  const std::string field = "metadata.mooncake_arena";
  if (!arena->is_object()) return invalid_argument("must be an object", field);
  core::ArenaPlace place;
  LEVADA_ASSIGN_OR_RETURN(place.session, required_text(*arena, "session"));
  LEVADA_ASSIGN_OR_RETURN(place.control, required_text(*arena, "control"));
  const auto addresses = json_member(*arena, "addresses");
  if (!addresses || !addresses->is_object()) return invalid_argument("must be an object", field + ".addresses");
  for (const core::StoredTensor& tensor : ref.tensors) {
    const auto address = json_member(*addresses, tensor.name);
    if (!address) return invalid_argument("lacks " + tensor.name, field + ".addresses");
    LEVADA_ASSIGN_OR_RETURN(const std::uint64_t number,
                            json_as<std::uint64_t>(*address, field + ".addresses", "an address"));
    place.addresses.push_back(number);
  }
  ref.arena = std::move(place);
  return {};
}

}  // namespace

std::string ref_json(const core::SampleRef& ref, const RefContext& context) {
  nlohmann::ordered_json out;
  const std::string prefix = context.run_id + ":";
  out["sample_id"] = ref.sample_id;
  out["run_id"] = context.run_id;
  out["source_task_id"] = ref.sample_id.rfind(prefix, 0) == 0 ? ref.sample_id.substr(prefix.size()) : ref.sample_id;
  out["feature_store_uri"] = "mooncake://" + ref.store_id + "/" + ref.sample_id;
  auto& keys = out["feature_keys"] = nlohmann::ordered_json::object();
  auto& specs = out["feature_specs"] = nlohmann::ordered_json::object();
  auto checksums = nlohmann::ordered_json::object();
  for (const core::StoredTensor& tensor : ref.tensors) {
    keys[tensor.name] = ref.sample_id + "/" + tensor.name;
    specs[tensor.name] = {{"name", tensor.name},
                          {"shape", tensor.shape},
                          {"dtype", to_string(tensor.dtype)},
                          {"device_hint", nullptr},
                          {"required", true},
                          {"target_repr", nullptr},
                          {"target_meta", nlohmann::ordered_json::object()}};
    checksums[tensor.name] = hex64(tensor.checksum);
  }
  out["strategy"] = context.strategy;
  out["schema_version"] = 1;
  out["target_model_version"] = context.target_model_version;
  out["draft_weight_version"] = context.draft_weight_version;
  out["tokenizer_version"] = context.tokenizer_version;
  out["num_tokens"] = ref.num_tokens;
  out["estimated_bytes"] = ref.bytes();
  out["metadata"] = {{"generation", ref.generation},
                     {"window_generation", ref.generation},
                     {"target_repr", context.target_repr},
                     {"vocab_map_version", nullptr},
                     {"transport", transport_of(ref.store_url)},
                     {"server", ref.store_url},
                     {"incarnation", hex64(ref.incarnation)},
                     {"aux_layer_ids", ref.aux_layer_ids},
                     {"checksums", checksums}};
  add_arena(ref, out["metadata"]);
  // What is not UTF-8 cannot have come from a checked request; it is replaced rather than thrown about.
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<core::SampleRef> parse_ref_value(Json root) {
  if (!root.is_object()) return invalid_argument("must be an object");
  core::SampleRef ref;
  LEVADA_ASSIGN_OR_RETURN(ref.sample_id, required_text(root, "sample_id"));
  LEVADA_ASSIGN_OR_RETURN(const std::string uri, required_text(root, "feature_store_uri"));
  constexpr std::string_view kScheme = "mooncake://";
  if (uri.rfind(kScheme, 0) != 0) return invalid_argument("must begin with mooncake://", "feature_store_uri");
  // "mooncake://{store_id}/{sample_id}"
  ref.store_id = uri.substr(kScheme.size());
  ref.store_id = ref.store_id.substr(0, ref.store_id.find('/'));
  if (ref.store_id.empty()) return invalid_argument("names no store", "feature_store_uri");
  LEVADA_ASSIGN_OR_RETURN(const std::int64_t version, json_required<std::int64_t>(root, "schema_version", "1"));
  if (version != 1) return invalid_argument("must be 1, got " + std::to_string(version), "schema_version");
  LEVADA_ASSIGN_OR_RETURN(const std::int64_t tokens, json_required<std::int64_t>(root, "num_tokens", "an integer"));
  if (tokens < 0 || tokens > std::numeric_limits<std::int32_t>::max()) {
    return invalid_argument("must be 0 to 2^31 - 1", "num_tokens");
  }
  ref.num_tokens = static_cast<std::int32_t>(tokens);
  const auto metadata = json_member(root, "metadata");
  if (!metadata || !metadata->is_object()) return invalid_argument("must be an object", "metadata");
  LEVADA_RETURN_IF_ERROR(parse_metadata(*metadata, ref));
  LEVADA_ASSIGN_OR_RETURN(const auto specs, json_required<simdjson::dom::object>(root, "feature_specs", "an object"));
  if (specs.size() == 0 || specs.size() > kMaxFeatures) {
    return invalid_argument("must have 1 to " + std::to_string(kMaxFeatures) + " features", "feature_specs");
  }
  const auto checksums = json_member(*metadata, "checksums");
  for (const auto [name, spec] : specs) {
    LEVADA_ASSIGN_OR_RETURN(auto tensor, parse_feature(name, spec, checksums));
    ref.tensors.push_back(std::move(tensor));
  }
  LEVADA_RETURN_IF_ERROR(parse_arena(*metadata, ref));
  return ref;
}

Result<core::SampleRef> parse_ref(std::string_view json) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(json);
  LEVADA_ASSIGN_OR_RETURN(const Json root, parse_json_object(parser, padded));
  return parse_ref_value(root);
}

}  // namespace levada::registry
