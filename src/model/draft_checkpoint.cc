#include "model/draft_checkpoint.h"

#include <unordered_map>
#include <unordered_set>

#include "files/printed.h"
#include "files/tensor_source.h"
#include "model/checkpoint_source.h"
#include "model/draft_names.h"
#include "model/draft_vocabulary.h"
#include "model/rope.h"

namespace levada::model {
namespace {

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
  bool has(DraftWeight weight) const override { return found_.contains(key(weight, 0)); }
  const std::vector<std::int32_t>& draft_ids() const override { return ids_; }
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
  Status find(const DraftTensor& wanted);

  const DraftConfig config_;
  const std::string file_;
  const std::unique_ptr<files::TensorSource> source_;
  std::unordered_map<std::int64_t, const files::TensorInfo*> found_;
  std::vector<std::int32_t> ids_;
};

Status DraftCheckpoint::find(const DraftTensor& wanted) {
  const files::TensorInfo* found = nullptr;
  for (const std::string& name : wanted.names) {
    const files::TensorInfo* const here = source_->find(name);
    if (here == nullptr) continue;
    if (found != nullptr) return data_loss(file_ + ": tensors " + found->name + " and " + name + " are the same one");
    found = here;
  }
  if (found == nullptr) {
    return wanted.required ? data_loss(file_ + ": tensor " + wanted.names.front() + " is missing") : Status();
  }
  if (found->shape != wanted.shape) {
    return data_loss(file_ + ": tensor " + found->name + " has shape " + files::to_string(found->shape) +
                     ", the configuration demands " + files::to_string(wanted.shape));
  }
  if (!is_plain_float(found->encoding)) {
    return data_loss(file_ + ": tensor " + found->name + " is stored as " + std::string(to_string(found->encoding)) +
                     ", float32, float16 or bfloat16 is demanded");
  }
  found_[key(wanted.weight, wanted.layer)] = found;
  return {};
}

Status DraftCheckpoint::check() {
  const bool eagle = config_.kind == DraftKind::kEagle3;
  for (const DraftTensor& tensor : tensors_of(config_)) LEVADA_RETURN_IF_ERROR(find(tensor));
  std::unordered_set<const files::TensorInfo*> known;
  for (const auto& [unused, info] : found_) known.insert(info);
  for (const files::TensorInfo& info : source_->tensors()) {
    if (known.contains(&info) || (eagle && is_draft_vocabulary(info.name))) continue;
    const std::string what = eagle ? "an EAGLE-3 draft"
                                   : "a DFlash draft with " + std::to_string(config_.layers) + " layers" +
                                         (config_.attention_bias ? "" : " and without attention_bias");
    return data_loss(file_ + ": unknown tensor " + info.name + " for " + what);
  }
  if (!eagle) return {};
  for (std::int64_t chunk = 1; chunk * config_.hidden < config_.features(); ++chunk) {
    if (found_.contains(key(DraftWeight::kFcNorm, chunk)) == has(DraftWeight::kFcNorm)) continue;
    return data_loss(file_ + ": tensors fc_norm.0.weight and fc_norm." + std::to_string(chunk) +
                     ".weight: one is there and one is missing");
  }
  LEVADA_ASSIGN_OR_RETURN(ids_, read_draft_vocabulary(config_, *source_, file_));
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
    const std::filesystem::path file = folder / "config.json";
    LEVADA_ASSIGN_OR_RETURN(DraftConfig config, read_draft_config(file));
    if (config.kind != room_->kind) {
      return invalid_argument(file.string() + ": is an " + std::string(to_string(config.kind)) +
                                  " draft, this server was started with room for " +
                                  std::string(to_string(room_->kind)) +
                                  " drafts, and what is cached is kept in their way",
                              "architectures");
    }
    LEVADA_ASSIGN_OR_RETURN(config, for_target(std::move(config), layers_, file.string()));
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
          .block_size = config.block_size,
          .kind = config.kind};
}

std::shared_ptr<const DraftOpener> make_draft_opener(const ModelConfig& target, const std::optional<DraftRoom>& room) {
  return std::make_shared<Opener>(target, room);
}

}  // namespace levada::model
