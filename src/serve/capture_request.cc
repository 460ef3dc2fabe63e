#include "serve/capture_request.h"

#include <cstring>
#include <limits>

#include "base/secret.h"
#include "capture/row_sink.h"
#include "serve/field_reader.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

// An item as it stands in the body: null where a prompt has none.
using ItemElements = std::vector<std::optional<element>>;

// [k, …], or {"aux": [k, …]}.
Result<std::vector<std::int32_t>> read_layers(element value, const std::string& field) {
  element of_aux;
  if (value.is_object() && object_of(value)["aux"].get(of_aux) == simdjson::SUCCESS) value = of_aux;
  if (!value.is_array()) return invalid_argument("must be a list of layers, got " + describe_type(value), field);
  std::vector<std::int32_t> layers;
  for (const element layer : array_of(value)) {
    const std::optional<std::int64_t> number = integer_of(layer);
    if (!number || *number < 0 || *number > 1 << 20) return invalid_argument("must hold layer numbers from 0", field);
    layers.push_back(static_cast<std::int32_t>(*number));
  }
  return layers;
}

// features: {"aux": NAME, "last_hidden": NAME}; ours besides: layers [k, …] for aux, dtype.
Status read_features(const CaptureTerms& terms, const FieldReader& fields, capture::SampleSpec& spec) {
  const std::optional<element> features = fields.find("features");
  if (!features || !features->is_object()) return invalid_argument("must be an object {artifact: name}", "features");
  DType dtype = terms.dtype;
  if (const auto wanted = fields.find("dtype")) {
    const std::optional<DType> named = wanted->is_string() ? dtype_named(string_of(*wanted)) : std::nullopt;
    if (!named) return invalid_argument("must be float32, float16 or bfloat16", "dtype");
    dtype = *named;
  }
  std::vector<std::int32_t> layers = terms.default_layers;
  if (const auto wanted = fields.find("layers")) {
    LEVADA_ASSIGN_OR_RETURN(layers, read_layers(*wanted, "layers"));
  }
  for (const auto [artifact, name] : object_of(*features)) {
    if (!name.is_string()) return invalid_argument("must name each artifact by a string", "features");
    if (artifact == "aux") {
      if (layers.empty()) {
        return invalid_argument("says no layers, and this server has no --spec-capture-aux-layer-ids", "layers");
      }
      spec.features.push_back({std::string(string_of(name)), layers, dtype});
    } else if (artifact == "last_hidden") {
      spec.features.push_back({std::string(string_of(name)), {capture::kFinalNorm}, dtype});
    } else {
      return invalid_argument("has the artifact \"" + std::string(artifact) + "\"; there are aux and last_hidden",
                              "features");
    }
  }
  return {};
}

template <class T>
void append_value(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <class T>
bool append_integer(std::vector<std::byte>& bytes, std::int64_t value) {
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) return false;
  append_value(bytes, static_cast<T>(value));
  return true;
}

// False: `value` is not of this type.
bool append_number(std::vector<std::byte>& bytes, DType dtype, element value) {
  if (dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 || dtype == DType::kBF16) {
    if (!value.is_number()) return false;
    const double number = value.get_double().value_unsafe();
    if (dtype == DType::kF64) return append_value(bytes, number), true;
    if (dtype == DType::kF32) return append_value(bytes, static_cast<float>(number)), true;
    return false;  // no client writes half floats as JSON
  }
  if (dtype == DType::kBool && value.is_bool()) {
    return append_value(bytes, static_cast<std::uint8_t>(value.get_bool().value_unsafe())), true;
  }
  const std::optional<std::int64_t> integer = integer_of(value);
  if (!integer) return false;
  switch (dtype) {
    case DType::kI64: return append_integer<std::int64_t>(bytes, *integer);
    case DType::kI32: return append_integer<std::int32_t>(bytes, *integer);
    case DType::kI16: return append_integer<std::int16_t>(bytes, *integer);
    case DType::kI8: return append_integer<std::int8_t>(bytes, *integer);
    case DType::kU8: return append_integer<std::uint8_t>(bytes, *integer);
    case DType::kBool: return (*integer == 0 || *integer == 1) && append_integer<std::uint8_t>(bytes, *integer);
    default: return false;
  }
}

// {name, data: [numbers, nested or flat], shape, dtype: int64 unless said}
Result<capture::PassthroughSpec> read_passthrough_tensor(element value, const std::string& field) {
  if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), field);
  FieldReader fields(object_of(value), field + ".");
  capture::PassthroughSpec tensor;
  std::optional<std::string> name, dtype;
  fields.text("name", 256, &name);
  fields.text("dtype", 32, &dtype);
  LEVADA_RETURN_IF_ERROR(fields.status());
  tensor.name = name.value_or("");
  const std::optional<DType> named = dtype ? dtype_named(*dtype) : std::optional(DType::kI64);
  if (!named) return invalid_argument("\"" + *dtype + "\" is not a dtype", field + ".dtype");
  tensor.dtype = *named;
  const auto shape = fields.find("shape"), data = fields.find("data");
  if (!data || !data->is_array()) return invalid_argument("must be a list of numbers", field + ".data");
  if (!shape || !shape->is_array()) return invalid_argument("must be a list of sizes", field + ".shape");
  for (const element size : array_of(*shape)) {
    const std::optional<std::int64_t> extent = integer_of(size);
    if (!extent) return invalid_argument("must hold whole numbers", field + ".shape");
    tensor.shape.push_back(*extent);
  }
  for (const element number : array_of(*data)) {
    if (!append_number(tensor.bytes, tensor.dtype, number)) {
      return invalid_argument("must hold values of type " + std::string(to_string(tensor.dtype)), field + ".data");
    }
  }
  return tensor;
}

Status read_item(const CaptureTerms& terms, element value, capture::SampleSpec& spec) {
  if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), "spec_capture");
  FieldReader fields(object_of(value));
  std::optional<std::string> store_id, sample_id;
  std::optional<std::int64_t> generation;
  fields.text("store_id", 4096, &store_id);
  fields.text("sample_id", 4096, &sample_id);
  fields.integer("gen", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
                 &generation);
  fields.boolean("replace", &spec.replace);
  if (store_id) spec.store_id = *store_id;
  spec.sample_id = sample_id.value_or("");
  spec.generation = generation.value_or(1);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_RETURN_IF_ERROR(read_features(terms, fields, spec));
  const auto passthrough = fields.find("passthrough");
  if (!passthrough) return {};
  if (!passthrough->is_array()) return invalid_argument("must be a list of tensors", "passthrough");
  std::size_t index = 0;
  for (const element tensor : array_of(*passthrough)) {
    LEVADA_ASSIGN_OR_RETURN(capture::PassthroughSpec read,
                            read_passthrough_tensor(tensor, "passthrough[" + std::to_string(index++) + "]"));
    spec.passthrough.push_back(std::move(read));
  }
  return {};
}

// The item that sampling_params carry in custom_params, as an object or as JSON text.
std::optional<element> plugin_item(element params) {
  element custom, item;
  if (!params.is_object() || params.get_object().value_unsafe()["custom_params"].get(custom) != simdjson::SUCCESS ||
      !custom.is_object() || custom.get_object().value_unsafe()["spec_capture"].get(item) != simdjson::SUCCESS ||
      item.is_null()) {
    return std::nullopt;
  }
  return item;
}

Result<ItemElements> patch_items(element value, std::size_t prompts) {
  ItemElements items;
  if (!value.is_array()) {
    items.emplace_back(value);
  } else {
    for (const element item : array_of(value)) items.push_back(item.is_null() ? std::nullopt : std::optional(item));
  }
  if (items.size() != prompts) {
    return invalid_argument("must have one item for each of the " + std::to_string(prompts) + " prompts, has " +
                                std::to_string(items.size()),
                            "spec_capture");
  }
  return items;
}

ItemElements plugin_items(std::optional<element> params, std::size_t prompts) {
  ItemElements items;
  if (params && params->is_array()) {
    for (const element entry : array_of(*params)) items.push_back(plugin_item(entry));
  } else if (params) {
    items.push_back(plugin_item(*params));
  }
  items.resize(prompts);
  return items;
}

bool shows_token(const CaptureTerms& terms, element item) {
  std::string_view token;
  return item.is_object() && object_of(item)["auth_token"].get(token) == simdjson::SUCCESS &&
         equal_in_constant_time(token, terms.token);
}

// One item; JSON text is parsed first.
CaptureItem read_one(const CaptureTerms& terms, std::optional<element> value, bool authorised, bool& token_wrong) {
  CaptureItem item;
  simdjson::dom::parser parser;
  if (value && value->is_string()) {
    element parsed;
    if (parser.parse(std::string(string_of(*value))).get(parsed) != simdjson::SUCCESS) {
      item.error = invalid_argument("is text that is not JSON", "spec_capture");
      return item;
    }
    value = parsed;
  }
  if (!value) {
    item.error = invalid_argument("this prompt has none, though others of the call have", "spec_capture");
    return item;
  }
  token_wrong = token_wrong || !(authorised || shows_token(terms, *value));
  item.error = read_item(terms, *value, item.spec);
  return item;
}

}  // namespace

bool asks_for_captures(simdjson::dom::object body) {
  const FieldReader fields(body);
  if (fields.find("spec_capture")) return true;
  const auto params = fields.find("sampling_params");
  if (!params || !params->is_array()) return params && plugin_item(*params);
  for (const element entry : array_of(*params)) {
    if (plugin_item(entry)) return true;
  }
  return false;
}

Result<std::optional<CaptureBody>> read_captures(const CaptureTerms* terms, std::string_view bearer,
                                                 simdjson::dom::object body, std::size_t prompts) {
  const FieldReader fields(body);
  const auto patch = fields.find("spec_capture");
  ItemElements items = plugin_items(fields.find("sampling_params"), prompts);
  bool plugin = false;
  for (const auto& item : items) plugin = plugin || item.has_value();
  if (!patch && !plugin) return std::optional<CaptureBody>();
  if (terms == nullptr) {
    return invalid_argument("this server does not capture; start it with --enable-spec-capture", "spec_capture");
  }
  CaptureBody captures;
  captures.results_in_lists = plugin && !patch;
  if (patch) {
    LEVADA_ASSIGN_OR_RETURN(items, patch_items(*patch, prompts));
  }
  const bool authorised = terms->token.empty() || equal_in_constant_time(bearer, terms->token);
  bool token_wrong = false;
  for (const auto& item : items) captures.items.push_back(read_one(*terms, item, authorised, token_wrong));
  if (token_wrong) {
    return Status(StatusCode::kUnauthenticated, "captures need this server's capture token", "auth_token");
  }
  if (patch && plugin) {
    for (CaptureItem& item : captures.items) {
      item.error = invalid_argument("stands both in the body and in custom_params; give one of them", "spec_capture");
    }
  }
  return std::optional(std::move(captures));
}

Result<std::optional<CaptureItem>> read_live_capture(const CaptureTerms* terms, std::string_view bearer,
                                                     simdjson::dom::object body) {
  const auto wish = FieldReader(body).find("capture");
  if (!wish) return std::optional<CaptureItem>();
  if (terms == nullptr) {
    return invalid_argument("this server does not capture; start it with --enable-spec-capture", "capture");
  }
  if (!wish->is_object()) return invalid_argument("must be an object, got " + describe_type(*wish), "capture");
  if (!terms->token.empty() && !equal_in_constant_time(bearer, terms->token) && !shows_token(*terms, *wish)) {
    return Status(StatusCode::kUnauthenticated, "captures need this server's capture token", "capture.auth_token");
  }
  CaptureItem item;
  item.spec.store_id = terms->limits.store_id;
  const auto named = [](const Status& failure) {
    return Status(failure.code(), failure.message(), "capture." + failure.field());
  };
  if (const Status read = read_item(*terms, *wish, item.spec); !read.ok()) return named(read);
  if (!item.spec.passthrough.empty()) {
    return invalid_argument("is the server's to fill: input_ids and loss_mask", "capture.passthrough");
  }
  if (const Status fit = capture::check(item.spec, 1, terms->limits); !fit.ok()) return named(fit);
  return std::optional(std::move(item));
}

void complete_live_capture(CaptureItem& item, std::span<const core::Token> tokens, std::size_t prompt_tokens) {
  capture::PassthroughSpec ids{"input_ids", DType::kI64, {1, static_cast<std::int64_t>(tokens.size())}, {}};
  capture::PassthroughSpec mask{"loss_mask", DType::kI64, ids.shape, {}};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    append_value(ids.bytes, static_cast<std::int64_t>(tokens[i]));
    append_value(mask.bytes, static_cast<std::int64_t>(i >= prompt_tokens ? 1 : 0));
  }
  item.spec.passthrough = {std::move(ids), std::move(mask)};
}

}  // namespace levada::serve
