#include "model/kv_scales.h"

#include <array>
#include <optional>
#include <utility>

#include "files/printed.h"

namespace levada::model {
namespace {

constexpr float kLeast = 1e-30f, kMost = 1e30f;

// Of keys and of values.
constexpr std::array kSpellings = {std::pair{"k_scale", "v_scale"}, std::pair{"k_proj.k_scale", "v_proj.v_scale"},
                                   std::pair{"kv_scale", "kv_scale"}};

Result<float> scale_of(const files::TensorInfo& tensor, const std::string& file) {
  const bool floats = tensor.encoding == files::Encoding::kF32 || tensor.encoding == files::Encoding::kF16 ||
                      tensor.encoding == files::Encoding::kBF16;
  if (!floats || tensor.elements() != 1) {
    return data_loss(file + ": tensor " + tensor.name + " has shape " + files::to_string(tensor.shape) + " as " +
                     std::string(to_string(tensor.encoding)) + ", a scale of the KV cache is one float for the layer");
  }
  float scale = 0;
  files::decode_to_f32(tensor, 0, 1, &scale);
  if (!(scale >= kLeast && scale <= kMost)) {
    return data_loss(file + ": tensor " + tensor.name + " is " + std::to_string(scale) +
                     ", a scale of the KV cache lies between 1e-30 and 1e30");
  }
  return scale;
}

// Nothing if the layer has none.
Result<std::optional<LayerKvScales>> read_layer(const files::TensorSource& source, const std::string& layer,
                                                const std::string& file, std::vector<std::string>& tensors) {
  std::optional<LayerKvScales> scales;
  for (const auto& [k_name, v_name] : kSpellings) {
    const files::TensorInfo *const k = source.find(layer + k_name), *const v = source.find(layer + v_name);
    if (k == nullptr && v == nullptr) continue;
    if (k == nullptr || v == nullptr) {
      return data_loss(file + ": tensor " + layer + (k == nullptr ? k_name : v_name) + " is missing");
    }
    if (scales) {
      return data_loss(file + ": tensor " + k->name + " and " + tensors.back() + " both scale the KV cache of a layer");
    }
    LEVADA_ASSIGN_OR_RETURN(const float k_scale, scale_of(*k, file));
    LEVADA_ASSIGN_OR_RETURN(const float v_scale, scale_of(*v, file));
    scales = {k_scale, v_scale};
    tensors.insert(tensors.end(), {k->name, v->name});
  }
  return scales;
}

}  // namespace

Result<StoredKvScales> read_kv_scales(const files::TensorSource& source, std::int64_t layers, bool demanded,
                                      const std::string& file) {
  StoredKvScales stored;
  for (std::int64_t l = 0; l < layers; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".self_attn.";
    LEVADA_ASSIGN_OR_RETURN(const std::optional<LayerKvScales> own, read_layer(source, layer, file, stored.tensors));
    const bool wanted = l == 0 ? demanded : !stored.layers.empty();
    if (wanted && !own) {
      return data_loss(
          file + ": tensor " + layer + "k_scale is missing: " +
          (l == 0 ? "the configuration's kv_cache_scheme demands it" : "layers before this one have theirs"));
    }
    if (!own) continue;
    if (stored.layers.size() < static_cast<std::size_t>(l)) {
      return data_loss(file + ": tensor model.layers.0.self_attn.k_scale is missing: " + stored.tensors.back() +
                       " is there");
    }
    stored.layers.push_back(*own);
  }
  return stored;
}

}  // namespace levada::model
