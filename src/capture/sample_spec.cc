#include "capture/sample_spec.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "capture/row_sink.h"

namespace levada::capture {

namespace {

constexpr std::size_t kMaxIdBytes = 256;
constexpr std::size_t kMaxPassthrough = 8;
constexpr std::size_t kMaxDimensions = 4;
constexpr std::int64_t kMaxGeneration = (std::int64_t{1} << 31) - 1;

bool is_id(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == ':' || c == '-';
  };
  return !text.empty() && text.size() <= kMaxIdBytes && std::all_of(text.begin(), text.end(), plain);
}

Status id_error(const std::string& field) {
  return invalid_argument("must be 1 to 256 characters of A-Z a-z 0-9 _ . : -", field);
}

Status check_identity(const SampleSpec& spec, const SampleLimits& limits) {
  if (!is_id(spec.store_id)) return id_error("store_id");
  if (!is_id(spec.sample_id)) return id_error("sample_id");
  if (spec.store_id != limits.store_id) {
    return invalid_argument("this server writes in \"" + limits.store_id + "\" only", "store_id");
  }
  if (!spec.sample_id.starts_with(spec.store_id + ":")) {
    return invalid_argument("must start with \"" + spec.store_id + ":\"", "sample_id");
  }
  if (spec.generation < 1 || spec.generation > kMaxGeneration) {
    return invalid_argument("must be 1 to " + std::to_string(kMaxGeneration), "gen");
  }
  return {};
}

Status check_feature(const FeatureSpec& feature, const SampleLimits& limits) {
  if (!is_id(feature.name)) return id_error("features");
  const std::string field = "features." + feature.name;
  if (feature.dtype != DType::kBF16 && feature.dtype != DType::kF16 && feature.dtype != DType::kF32) {
    return invalid_argument("hidden states are bfloat16, float16 or float32", field + ".dtype");
  }
  if (feature.states.empty()) return invalid_argument("names no layer", field + ".layers");
  if (feature.states == std::vector{kFinalNorm}) return {};
  std::set<std::int32_t> seen;
  for (const std::int32_t layer : feature.states) {
    if (layer < 0 || layer >= limits.layers) {
      return invalid_argument("layer " + std::to_string(layer) + " is outside 0 to " +
                                  std::to_string(limits.layers - 1) + " (the output of decoder layer k)",
                              field + ".layers");
    }
    if (!seen.insert(layer).second) {
      return invalid_argument("names layer " + std::to_string(layer) + " twice", field + ".layers");
    }
  }
  return {};
}

Status check_passthrough(const PassthroughSpec& tensor, std::int64_t max_bytes) {
  if (!is_id(tensor.name)) return id_error("passthrough");
  const std::string field = "passthrough." + tensor.name;
  if (tensor.shape.empty() || tensor.shape.size() > kMaxDimensions) {
    return invalid_argument("must have 1 to 4 dimensions", field + ".shape");
  }
  std::int64_t bytes = static_cast<std::int64_t>(levada::bytes_of(tensor.dtype));
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension < 1 || dimension > max_bytes / bytes) {
      return invalid_argument("must be positive and together stay within " + std::to_string(max_bytes) + " bytes",
                              field + ".shape");
    }
    bytes *= dimension;
  }
  if (bytes != static_cast<std::int64_t>(tensor.bytes.size())) {
    return invalid_argument("holds " + std::to_string(tensor.bytes.size() / levada::bytes_of(tensor.dtype)) +
                                " values, which is not the product of its shape",
                            field + ".data");
  }
  return {};
}

Status check_names(const SampleSpec& spec) {
  std::set<std::string_view> names;
  for (const FeatureSpec& feature : spec.features) {
    if (!names.insert(feature.name).second)
      return invalid_argument("\"" + feature.name + "\" stands twice", "features");
  }
  for (const PassthroughSpec& tensor : spec.passthrough) {
    if (!names.insert(tensor.name).second) {
      return invalid_argument("\"" + tensor.name + "\" stands twice", "passthrough");
    }
  }
  return {};
}

}  // namespace

Status check(const SampleSpec& spec, std::int32_t tokens, const SampleLimits& limits) {
  LEVADA_RETURN_IF_ERROR(check_identity(spec, limits));
  if (spec.features.empty()) return invalid_argument("asks for nothing", "features");
  if (spec.passthrough.size() > kMaxPassthrough) {
    return invalid_argument(
        "has " + std::to_string(spec.passthrough.size()) + " tensors, more than " + std::to_string(kMaxPassthrough),
        "passthrough");
  }
  for (const FeatureSpec& feature : spec.features) LEVADA_RETURN_IF_ERROR(check_feature(feature, limits));
  for (const PassthroughSpec& tensor : spec.passthrough) {
    LEVADA_RETURN_IF_ERROR(check_passthrough(tensor, limits.max_sample_bytes));
  }
  LEVADA_RETURN_IF_ERROR(check_names(spec));
  const std::int64_t bytes = bytes_of(spec, tokens, limits.hidden_size);
  if (bytes > limits.max_sample_bytes) {
    return payload_too_large(
        "the sample takes " + std::to_string(bytes) + " bytes, more than " + std::to_string(limits.max_sample_bytes),
        "features");
  }
  return {};
}

std::int64_t bytes_of(const SampleSpec& spec, std::int32_t tokens, std::int32_t hidden_size) {
  std::int64_t bytes = 0;
  for (const FeatureSpec& feature : spec.features) {
    bytes += static_cast<std::int64_t>(feature.states.size() * levada::bytes_of(feature.dtype)) * tokens * hidden_size;
  }
  for (const PassthroughSpec& tensor : spec.passthrough) bytes += static_cast<std::int64_t>(tensor.bytes.size());
  return bytes;
}

std::vector<std::int32_t> states_of(const SampleSpec& spec) {
  std::set<std::int32_t> states;
  for (const FeatureSpec& feature : spec.features) states.insert(feature.states.begin(), feature.states.end());
  return {states.begin(), states.end()};
}

}  // namespace levada::capture
