#include "model/draft_checkpoint.h"

#include <array>
#include <unordered_map>

#include "files/printed.h"
#include "files/tensor_source.h"
#include "model/checkpoint_source.h"
#include "model/rope.h"

namespace levada::model {
namespace {

struct DraftNaming {
  DraftWeight weight;
  const char* name;
  const char* alias = nullptr;  // SGLang's other name
};

constexpr std::array kOnce = {
    DraftNaming{DraftWeight::kFc, "fc.weight", "encoder.fc.weight"},
    DraftNaming{DraftWeight::kHiddenNorm, "hidden_norm.weight", "encoder.output_norm_enc.weight"},
    DraftNaming{DraftWeight::kNorm, "norm.weight"}};
constexpr std::array kPerLayer = {DraftNaming{DraftWeight::kInputNorm, "input_layernorm.weight"},
                                  DraftNaming{DraftWeight::kPostNorm, "post_attention_layernorm.weight"},
                                  DraftNaming{DraftWeight::kQ, "self_attn.q_proj.weight"},
                                  DraftNaming{DraftWeight::kK, "self_attn.k_proj.weight"},
                                  DraftNaming{DraftWeight::kV, "self_attn.v_proj.weight"},
                                  DraftNaming{DraftWeight::kO, "self_attn.o_proj.weight"},
                                  DraftNaming{DraftWeight::kGate, "mlp.gate_proj.weight"},
                                  DraftNaming{DraftWeight::kUp, "mlp.up_proj.weight"},
                                  DraftNaming{DraftWeight::kDown, "mlp.down_proj.weight"},
                                  DraftNaming{DraftWeight::kQNorm, "self_attn.q_norm.weight"},
                                  DraftNaming{DraftWeight::kKNorm, "self_attn.k_norm.weight"}};
constexpr std::array kBiases = {DraftNaming{DraftWeight::kQBias, "self_attn.q_proj.bias"},
                                DraftNaming{DraftWeight::kKBias, "self_attn.k_proj.bias"},
                                DraftNaming{DraftWeight::kVBias, "self_attn.v_proj.bias"},
                                DraftNaming{DraftWeight::kOBias, "self_attn.o_proj.bias"}};

std::vector<std::int64_t> shape_of(const DraftConfig& c, DraftWeight weight) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  switch (weight) {
    case DraftWeight::kFc: return {c.hidden, c.features()};
    case DraftWeight::kHiddenNorm:
    case DraftWeight::kNorm:
    case DraftWeight::kInputNorm:
    case DraftWeight::kPostNorm:
    case DraftWeight::kOBias: return {c.hidden};
    case DraftWeight::kQ: return {q, c.hidden};
    case DraftWeight::kK:
    case DraftWeight::kV: return {kv, c.hidden};
    case DraftWeight::kO: return {c.hidden, q};
    case DraftWeight::kGate:
    case DraftWeight::kUp: return {c.intermediate, c.hidden};
    case DraftWeight::kDown: return {c.hidden, c.intermediate};
    case DraftWeight::kQNorm:
    case DraftWeight::kKNorm: return {c.head_dim};
    case DraftWeight::kQBias: return {q};
    case DraftWeight::kKBias:
    case DraftWeight::kVBias: return {kv};
  }
  return {};
}

bool is_plain_float(files::Encoding encoding) {
  return encoding == files::Encoding::kF32 || encoding == files::Encoding::kF16 || encoding == files::Encoding::kBF16;
}

class DraftCheckpoint final : public DraftSource {
 public:
  DraftCheckpoint(DraftConfig config, std::string file, std::unique_ptr<files::TensorSource> source)
      : config_(std::move(config)), file_(std::move(file)), source_(std::move(source)) {}

  // Finds every tensor, once and as the configuration demands, and no other.
  Status check();
  const DraftConfig& config() const override { return config_; }
  bool wide() const override { return tensor(DraftWeight::kFc, 0).encoding == files::Encoding::kF32; }
  void read(DraftWeight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
            void* out) const override;
  void fill_cos_sin(std::int64_t positions, float* out) const override {
    RopeConfig rope;
    rope.theta = config_.rope_theta;
    model::fill_cos_sin(rope, config_.head_dim, positions, out);
  }

 private:
  static std::int64_t key(DraftWeight weight, std::int64_t layer) {
    return layer * 64 + static_cast<std::int64_t>(weight);
  }
  const files::TensorInfo& tensor(DraftWeight weight, std::int64_t layer) const {
    return *found_.at(key(weight, layer));
  }
  Status find(const DraftNaming& naming, const std::string& prefix, std::int64_t layer);

  const DraftConfig config_;
  const std::string file_;
  const std::unique_ptr<files::TensorSource> source_;
  std::unordered_map<std::int64_t, const files::TensorInfo*> found_;
};

Status DraftCheckpoint::find(const DraftNaming& naming, const std::string& prefix, std::int64_t layer) {
  const std::string name = prefix + naming.name;
  const files::TensorInfo* found = nullptr;
  std::vector<std::string> spellings{name, "model." + name};
  if (naming.alias != nullptr) spellings.insert(spellings.end(), {naming.alias, std::string("model.") + naming.alias});
  for (const std::string& spelling : spellings) {
    const files::TensorInfo* const here = source_->find(spelling);
    if (here == nullptr) continue;
    if (found != nullptr)
      return data_loss(file_ + ": tensors " + found->name + " and " + spelling + " are the same one");
    found = here;
  }
  if (found == nullptr) return data_loss(file_ + ": tensor " + name + " is missing");
  const std::vector<std::int64_t> shape = shape_of(config_, naming.weight);
  if (found->shape != shape) {
    return data_loss(file_ + ": tensor " + found->name + " has shape " + files::to_string(found->shape) +
                     ", the configuration demands " + files::to_string(shape));
  }
  if (!is_plain_float(found->encoding)) {
    return data_loss(file_ + ": tensor " + found->name + " is stored as " + std::string(to_string(found->encoding)) +
                     ", float32, float16 or bfloat16 is demanded");
  }
  found_[key(naming.weight, layer)] = found;
  return {};
}

Status DraftCheckpoint::check() {
  for (const DraftNaming& naming : kOnce) LEVADA_RETURN_IF_ERROR(find(naming, "", 0));
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    for (const DraftNaming& naming : kPerLayer) LEVADA_RETURN_IF_ERROR(find(naming, prefix, layer));
    if (!config_.attention_bias) continue;
    for (const DraftNaming& naming : kBiases) LEVADA_RETURN_IF_ERROR(find(naming, prefix, layer));
  }
  if (source_->tensors().size() == found_.size()) return {};
  std::unordered_map<const files::TensorInfo*, bool> known;
  for (const auto& [unused, info] : found_) known[info] = true;
  for (const files::TensorInfo& info : source_->tensors()) {
    if (!known.contains(&info)) {
      return data_loss(file_ + ": unknown tensor " + info.name + " for a DFlash draft with " +
                       std::to_string(config_.layers) + " layers" +
                       (config_.attention_bias ? "" : " and without attention_bias"));
    }
  }
  return {};
}

void DraftCheckpoint::read(DraftWeight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
                           void* out) const {
  const files::TensorInfo& info = tensor(weight, layer);
  LEVADA_CHECK(first >= 0 && count >= 0 && first + count <= info.shape[0], "rows of this weight");
  const std::int64_t width = info.shape.size() == 2 ? info.shape[1] : 1;
  std::vector<float> row(static_cast<std::size_t>(info.shape.size() == 2 ? width : count));
  const std::int64_t steps = info.shape.size() == 2 ? count : std::min<std::int64_t>(count, 1);
  for (std::int64_t r = 0; r < steps; ++r) {
    files::decode_to_f32(info, (first + r) * width, static_cast<std::int64_t>(row.size()), row.data());
    narrow(row, dtype, static_cast<std::byte*>(out) + static_cast<std::size_t>(r) * row.size() * bytes_of(dtype));
  }
  if (first + count == info.shape[0]) source_->drop_resident(info);
}

class Opener final : public DraftOpener {
 public:
  Opener(const ModelConfig& target, const std::optional<DraftRoom>& room)
      : hidden_(target.hidden), vocabulary_(target.vocabulary), layers_(target.layers), room_(room) {}

  Result<std::unique_ptr<DraftSource>> open(const std::filesystem::path& folder) const override {
    if (!room_.has_value()) {
      return Status(StatusCode::kFailedPrecondition,
                    "this model was loaded without room for a draft: its KV pages have no draft planes");
    }
    if (!std::filesystem::is_directory(folder)) return not_found(folder.string() + ": no such folder", "draft");
    LEVADA_ASSIGN_OR_RETURN(DraftConfig config, read_draft_config(folder / "config.json"));
    if (config.kind != DraftKind::kDflash) {
      return invalid_argument(folder.string() + ": EAGLE-3 drafts are not served", "architectures");
    }
    LEVADA_RETURN_IF_ERROR(check_target(config, folder));
    LEVADA_RETURN_IF_ERROR(check_room(config, folder));
    LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<files::TensorSource> source, files::open_safetensors_folder(folder));
    auto checkpoint = std::make_unique<DraftCheckpoint>(std::move(config), folder.string(), std::move(source));
    LEVADA_RETURN_IF_ERROR(checkpoint->check());
    return std::unique_ptr<DraftSource>(std::move(checkpoint));
  }

 private:
  Status check_target(const DraftConfig& config, const std::filesystem::path& folder) const {
    const struct {
      const char* field;
      std::int64_t value, target;
    } pairs[] = {{"hidden_size", config.hidden, hidden_},
                 {"vocab_size", config.vocabulary, vocabulary_},
                 {"num_target_layers", config.num_target_layers, layers_}};
    for (const auto& pair : pairs) {
      if (pair.value == pair.target) continue;
      return invalid_argument((folder / "config.json").string() + ": " + pair.field + " is " +
                                  std::to_string(pair.value) + ", the target's is " + std::to_string(pair.target),
                              pair.field);
    }
    // It would replace a row of the target's table, as SGLang does: not built.
    if (std::filesystem::exists(folder / "mask_embedding.pt")) {
      return invalid_argument(
          folder.string() + ": drafts with an embedding of their own for the mask are not supported",
          "mask_embedding.pt");
    }
    return {};
  }
  Status check_room(const DraftConfig& config, const std::filesystem::path& folder) const {
    const DraftRoom wanted = room_for(config);
    const struct {
      const char* what;
      std::int64_t wanted, room;
    } pairs[] = {{"layers", wanted.layers, room_->layers},
                 {"numbers of a key (key heads * head_dim)", wanted.kv_width, room_->kv_width},
                 {"captured features (target layers * hidden)", wanted.features, room_->features},
                 {"parameters", wanted.parameters, room_->parameters},
                 {"tokens of a block", wanted.block_size, room_->block_size}};
    for (const auto& pair : pairs) {
      if (pair.wanted <= pair.room) continue;
      return resource_exhausted(folder.string() + ": the draft has " + std::to_string(pair.wanted) + " " + pair.what +
                                ", there is room for " + std::to_string(pair.room));
    }
    return {};
  }

  const std::int64_t hidden_, vocabulary_, layers_;
  const std::optional<DraftRoom> room_;
};

}  // namespace

DraftRoom room_for(const DraftConfig& config) {
  return {.layers = config.layers,
          .kv_width = config.kv_heads * config.head_dim,
          .features = config.features(),
          .parameters = config.parameters(),
          .block_size = config.block_size};
}

std::shared_ptr<const DraftOpener> make_draft_opener(const ModelConfig& target, const std::optional<DraftRoom>& room) {
  return std::make_shared<Opener>(target, room);
}

}  // namespace levada::model
