#include "model/checkpoint.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/hash.h"
#include "base/hex.h"
#include "files/printed.h"

namespace levada::model {
namespace {

struct Naming {
  Weight weight;
  bool per_layer;
  const char* hf;
  const char* gguf;
};

constexpr std::array kNames = {
    Naming{Weight::kEmbedding, false, "model.embed_tokens.weight", "token_embd.weight"},
    Naming{Weight::kFinalNorm, false, "model.norm.weight", "output_norm.weight"},
    Naming{Weight::kHead, false, "lm_head.weight", "output.weight"},
    Naming{Weight::kInputNorm, true, "input_layernorm.weight", "attn_norm.weight"},
    Naming{Weight::kPostNorm, true, "post_attention_layernorm.weight", "ffn_norm.weight"},
    Naming{Weight::kQ, true, "self_attn.q_proj.weight", "attn_q.weight"},
    Naming{Weight::kK, true, "self_attn.k_proj.weight", "attn_k.weight"},
    Naming{Weight::kV, true, "self_attn.v_proj.weight", "attn_v.weight"},
    Naming{Weight::kO, true, "self_attn.o_proj.weight", "attn_output.weight"},
    Naming{Weight::kGate, true, "mlp.gate_proj.weight", "ffn_gate.weight"},
    Naming{Weight::kUp, true, "mlp.up_proj.weight", "ffn_up.weight"},
    Naming{Weight::kDown, true, "mlp.down_proj.weight", "ffn_down.weight"},
    Naming{Weight::kQNorm, true, "self_attn.q_norm.weight", "attn_q_norm.weight"},
    Naming{Weight::kKNorm, true, "self_attn.k_norm.weight", "attn_k_norm.weight"},
};

bool is_float(files::Encoding encoding) {
  switch (encoding) {
    case files::Encoding::kI64:
    case files::Encoding::kI32:
    case files::Encoding::kU8:
    case files::Encoding::kF8E4M3: return false;
    default: return true;
  }
}

constexpr const char* kScaleSuffix = "_scale_inv";

std::int64_t blocks_of(std::int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

// GGUF keeps llama-3's scaled frequencies as one divisor per frequency.
Status read_divisors(const files::TensorSource& source, const std::string& file, ModelConfig& config) {
  const files::TensorInfo* factors = source.find("rope_freqs.weight");
  if (factors == nullptr) return {};
  if (factors->shape != std::vector<std::int64_t>{config.head_dim / 2} || factors->encoding != files::Encoding::kF32) {
    return data_loss(file + ": tensor rope_freqs.weight must be float32 with one factor per frequency");
  }
  config.rope.divisors.resize(static_cast<std::size_t>(config.head_dim / 2));
  files::decode_to_f32(*factors, 0, config.head_dim / 2, config.rope.divisors.data());
  for (float divisor : config.rope.divisors) {
    if (!(divisor > 0 && divisor < 1e6f))
      return data_loss(file + ": tensor rope_freqs.weight has a factor out of range");
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& path) {
  const std::string file = path.string();
  if (std::filesystem::is_directory(path)) {
    LEVADA_ASSIGN_OR_RETURN(ModelConfig config, read_hf_config(path));
    LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<files::TensorSource> source, files::open_safetensors_folder(path));
    return make(std::move(source), std::move(config), file, false);
  }
  if (!std::filesystem::exists(path)) return not_found(file + ": no such model file or folder", "model");
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<files::GgufFile> gguf, files::GgufFile::open(path));
  LEVADA_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_config(*gguf, file));
  LEVADA_RETURN_IF_ERROR(read_divisors(*gguf, file, config));
  return make(std::move(gguf), std::move(config), file, true);
}

Result<Checkpoint> Checkpoint::make(std::unique_ptr<files::TensorSource> source, ModelConfig config, std::string file,
                                    bool gguf) {
  Checkpoint checkpoint;
  checkpoint.source_ = std::move(source);
  checkpoint.config_ = std::move(config);
  checkpoint.file_ = std::move(file);
  checkpoint.gguf_ = gguf;
  if (!gguf) {
    LEVADA_ASSIGN_OR_RETURN(checkpoint.kv_scales_, read_kv_scales(*checkpoint.source_, checkpoint.config_.layers,
                                                                  checkpoint.config_.kv_scales, checkpoint.file_));
  }
  LEVADA_RETURN_IF_ERROR(checkpoint.check_tensors());
  return checkpoint;
}

std::string Checkpoint::name(Weight weight, std::int64_t layer) const {
  const auto naming = std::find_if(kNames.begin(), kNames.end(), [&](const Naming& n) { return n.weight == weight; });
  const char* own = gguf_ ? naming->gguf : naming->hf;
  if (!naming->per_layer) return own;
  return (gguf_ ? "blk." : "model.layers.") + std::to_string(layer) + "." + own;
}

std::vector<std::int64_t> Checkpoint::shape(Weight weight) const {
  const ModelConfig& c = config_;
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  switch (weight) {
    case Weight::kEmbedding:
    case Weight::kHead: return {c.vocabulary, c.hidden};
    case Weight::kFinalNorm:
    case Weight::kInputNorm:
    case Weight::kPostNorm: return {c.hidden};
    case Weight::kQ: return {q, c.hidden};
    case Weight::kK:
    case Weight::kV: return {kv, c.hidden};
    case Weight::kO: return {c.hidden, q};
    case Weight::kGate:
    case Weight::kUp: return {c.intermediate, c.hidden};
    case Weight::kDown: return {c.hidden, c.intermediate};
    case Weight::kQNorm:
    case Weight::kKNorm: return {c.head_dim};
  }
  return {};
}

bool Checkpoint::needs(Weight weight) const {
  if (weight == Weight::kHead) return !config_.tied;
  if (weight == Weight::kQNorm || weight == Weight::kKNorm) return config_.qk_norm;
  return true;
}

bool Checkpoint::redundant(const std::string& name) const {
  if (gguf_) return name == "rope_freqs.weight";
  return (config_.tied && name == "lm_head.weight") || name.ends_with(".rotary_emb.inv_freq");
}

template <class Visit>
void Checkpoint::for_each_weight(Visit visit) const {
  for (const Naming& naming : kNames) {
    if (!needs(naming.weight)) continue;
    for (std::int64_t layer = 0; layer < (naming.per_layer ? config_.layers : 1); ++layer) visit(naming.weight, layer);
  }
}

Status Checkpoint::check_one(Weight weight, std::int64_t layer) const {
  const std::string wanted = name(weight, layer);
  const files::TensorInfo* found = source_->find(wanted);
  if (found == nullptr) return data_loss(file_ + ": tensor " + wanted + " is missing");
  if (found->shape != shape(weight)) {
    return data_loss(file_ + ": tensor " + wanted + " has shape " + files::to_string(found->shape) +
                     ", the configuration demands " + files::to_string(shape(weight)));
  }
  if (found->encoding == files::Encoding::kF8E4M3) return check_scales(weight, layer);
  if (!is_float(found->encoding)) {
    return data_loss(file_ + ": tensor " + wanted + " is stored as " + std::string(to_string(found->encoding)) +
                     ", which is no supported form of a weight");
  }
  return {};
}

Status Checkpoint::check_scales(Weight weight, std::int64_t layer) const {
  const std::string wanted = name(weight, layer) + kScaleSuffix;
  const std::vector<std::int64_t> extents = shape(weight);
  if (!config_.fp8_blocks || extents.size() != 2 || weight == Weight::kEmbedding || weight == Weight::kHead) {
    return data_loss(file_ + ": tensor " + name(weight, layer) +
                     " is stored as F8_E4M3: only matrices of layers may be, and the configuration must have a "
                     "quantization_config");
  }
  const files::TensorInfo* found = source_->find(wanted);
  if (found == nullptr) return data_loss(file_ + ": tensor " + wanted + " is missing");
  const std::vector<std::int64_t> blocks{blocks_of(extents[0]), blocks_of(extents[1])};
  if (found->shape != blocks || !is_float(found->encoding) || files::block_elements(found->encoding) != 1) {
    return data_loss(file_ + ": tensor " + wanted + " has shape " + files::to_string(found->shape) + " as " +
                     std::string(to_string(found->encoding)) + ", floats of shape " + files::to_string(blocks) +
                     " are demanded");
  }
  return {};
}

Status Checkpoint::check_tensors() const {
  Status status;
  std::unordered_set<std::string> known(kv_scales_.tensors.begin(), kv_scales_.tensors.end());
  for_each_weight([&](Weight weight, std::int64_t layer) {
    known.insert(name(weight, layer));
    if (config_.fp8_blocks) known.insert(name(weight, layer) + kScaleSuffix);
    if (status.ok()) status = check_one(weight, layer);
  });
  LEVADA_RETURN_IF_ERROR(status);
  for (const files::TensorInfo& tensor : source_->tensors()) {
    if (!known.contains(tensor.name) && !redundant(tensor.name)) {
      return data_loss(file_ + ": unknown tensor " + tensor.name + " for architecture " + config_.architecture +
                       " with " + std::to_string(config_.layers) + " layers");
    }
  }
  return {};
}

const files::TensorInfo& Checkpoint::tensor(Weight weight, std::int64_t layer) const {
  const files::TensorInfo* found = source_->find(name(weight, layer));
  LEVADA_CHECK(found != nullptr, "every needed tensor was found at open");
  return *found;
}

const files::TensorInfo* Checkpoint::block_scales(Weight weight, std::int64_t layer) const {
  if (tensor(weight, layer).encoding != files::Encoding::kF8E4M3) return nullptr;
  return source_->find(name(weight, layer) + kScaleSuffix);
}

std::int64_t Checkpoint::parameters() const {
  std::int64_t count = 0;
  for_each_weight([&](Weight weight, std::int64_t layer) { count += tensor(weight, layer).elements(); });
  return count;
}

std::int64_t Checkpoint::source_bytes() const {
  std::int64_t bytes = 0;
  for (const files::TensorInfo& info : source_->tensors()) bytes += static_cast<std::int64_t>(info.bytes.size());
  return bytes;
}

std::string Checkpoint::identity() const {
  // Enough of each tensor that a fine-tune of any layer changes the hash, little enough that start-up isn't a full
  // read.
  constexpr std::size_t kSamples = 16, kSampleBytes = 64;
  std::vector<const files::TensorInfo*> sorted;
  for (const files::TensorInfo& tensor : source_->tensors()) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::string text = config_.identity();
  for (const files::TensorInfo* tensor : sorted) {
    text += "\n" + tensor->name + files::to_string(tensor->shape) + std::string(to_string(tensor->encoding));
    const std::size_t bytes = tensor->bytes.size(), length = std::min(kSampleBytes, bytes);
    for (std::size_t i = 0; i < kSamples && length > 0; ++i) {
      const std::size_t first = (bytes - length) / (kSamples - 1) * i;
      text.append(reinterpret_cast<const char*>(tensor->bytes.data()) + first, length);
    }
  }
  const Hash128 hash = hash128(std::as_bytes(std::span(text)));
  return hex64(hash.high) + hex64(hash.low);
}

}  // namespace levada::model
