#include "model/draft_names.h"

#include <array>

namespace levada::model {
namespace {

struct DraftNaming {
  DraftWeight weight;
  const char* name;
  const char* alias = nullptr;  // SGLang's other name
};

constexpr std::array kDflashOnce = {
    DraftNaming{DraftWeight::kFc, "fc.weight", "encoder.fc.weight"},
    DraftNaming{DraftWeight::kHiddenNorm, "hidden_norm.weight", "encoder.output_norm_enc.weight"},
    DraftNaming{DraftWeight::kNorm, "norm.weight"}};
constexpr std::array kEagleOnce = {DraftNaming{DraftWeight::kFc, "fc.weight"},
                                   DraftNaming{DraftWeight::kNorm, "norm.weight"},
                                   DraftNaming{DraftWeight::kHead, "lm_head.weight"}};
constexpr std::array kPerLayer = {DraftNaming{DraftWeight::kInputNorm, "input_layernorm.weight"},
                                  DraftNaming{DraftWeight::kPostNorm, "post_attention_layernorm.weight"},
                                  DraftNaming{DraftWeight::kQ, "self_attn.q_proj.weight"},
                                  DraftNaming{DraftWeight::kK, "self_attn.k_proj.weight"},
                                  DraftNaming{DraftWeight::kV, "self_attn.v_proj.weight"},
                                  DraftNaming{DraftWeight::kO, "self_attn.o_proj.weight"},
                                  DraftNaming{DraftWeight::kGate, "mlp.gate_proj.weight"},
                                  DraftNaming{DraftWeight::kUp, "mlp.up_proj.weight"},
                                  DraftNaming{DraftWeight::kDown, "mlp.down_proj.weight"}};
constexpr std::array kDflashNorms = {DraftNaming{DraftWeight::kQNorm, "self_attn.q_norm.weight"},
                                     DraftNaming{DraftWeight::kKNorm, "self_attn.k_norm.weight"}};
constexpr std::array kBiases = {DraftNaming{DraftWeight::kQBias, "self_attn.q_proj.bias"},
                                DraftNaming{DraftWeight::kKBias, "self_attn.k_proj.bias"},
                                DraftNaming{DraftWeight::kVBias, "self_attn.v_proj.bias"},
                                DraftNaming{DraftWeight::kOBias, "self_attn.o_proj.bias"}};

std::vector<std::int64_t> shape_of(const DraftConfig& c, DraftWeight weight) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::int64_t attended = c.kind == DraftKind::kEagle3 ? 2 * c.hidden : c.hidden;
  switch (weight) {
    case DraftWeight::kFc: return {c.hidden, c.features()};
    case DraftWeight::kHiddenNorm:
    case DraftWeight::kNorm:
    case DraftWeight::kInputNorm:
    case DraftWeight::kPostNorm:
    case DraftWeight::kFcNorm:
    case DraftWeight::kOBias: return {c.hidden};
    case DraftWeight::kQ: return {q, attended};
    case DraftWeight::kK:
    case DraftWeight::kV: return {kv, attended};
    case DraftWeight::kO: return {c.hidden, q};
    case DraftWeight::kGate:
    case DraftWeight::kUp: return {c.intermediate, c.hidden};
    case DraftWeight::kDown: return {c.hidden, c.intermediate};
    case DraftWeight::kQNorm:
    case DraftWeight::kKNorm: return {c.head_dim};
    case DraftWeight::kQBias: return {q};
    case DraftWeight::kKBias:
    case DraftWeight::kVBias: return {kv};
    case DraftWeight::kHead: return {c.draft_vocabulary, c.hidden};
    case DraftWeight::kEmbedding: return {c.vocabulary, c.hidden};
  }
  return {};
}

// Adds tensors of one configuration.
class DraftTensorList {
 public:
  explicit DraftTensorList(const DraftConfig& config) : config_(config) {}

  void add(const DraftNaming& naming, std::int64_t layer, const std::vector<std::string>& prefixes, bool required) {
    DraftTensor tensor{naming.weight, layer, {}, shape_of(config_, naming.weight), required};
    for (const char* name : {naming.name, naming.alias}) {
      if (name == nullptr) continue;
      for (const std::string& prefix : prefixes)
        tensor.names.insert(tensor.names.end(), {prefix + name, "model." + prefix + name});
    }
    tensors_.push_back(std::move(tensor));
  }
  template <class Namings>
  void add_all(const Namings& namings, std::int64_t layer, const std::vector<std::string>& prefixes) {
    for (const DraftNaming& naming : namings) add(naming, layer, prefixes, true);
  }
  std::vector<DraftTensor> take() { return std::move(tensors_); }

 private:
  const DraftConfig& config_;
  std::vector<DraftTensor> tensors_;
};

std::vector<DraftTensor> eagle_tensors(const DraftConfig& c) {
  const std::vector<std::string> layer{"midlayer.", "layers.0."};
  DraftTensorList list(c);
  list.add_all(kEagleOnce, 0, {""});
  list.add_all(kPerLayer, 0, layer);
  list.add({DraftWeight::kHiddenNorm, "hidden_norm.weight"}, 0, layer, true);
  list.add({DraftWeight::kEmbedding, "embed_tokens.weight"}, 0, {""}, false);
  for (std::int64_t chunk = 0; chunk * c.hidden < c.features(); ++chunk) {
    list.add({DraftWeight::kFcNorm, "weight"}, chunk, {"fc_norm." + std::to_string(chunk) + "."}, false);
  }
  return list.take();
}

}  // namespace

std::vector<DraftTensor> tensors_of(const DraftConfig& c) {
  if (c.kind == DraftKind::kEagle3) return eagle_tensors(c);
  DraftTensorList list(c);
  list.add_all(kDflashOnce, 0, {""});
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const std::vector<std::string> prefix{"layers." + std::to_string(layer) + "."};
    list.add_all(kPerLayer, layer, prefix);
    list.add_all(kDflashNorms, layer, prefix);
    if (c.attention_bias) list.add_all(kBiases, layer, prefix);
  }
  return list.take();
}

}  // namespace levada::model
