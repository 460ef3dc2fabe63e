#include "model/cuda/cuda_model.h"

#include <algorithm>
#include <numeric>

#include "base/lap.h"
#include "base/log.h"
#include "model/cuda/warmup.h"

namespace levada::model {

namespace cuda = kernels::cuda;

namespace {

constexpr std::int64_t kMaxTableEntries = 1 << 20;
constexpr std::int32_t kMaxExpandedTokens = 65'536;  // whose pages of a float8 cache are widened for one step
constexpr std::int64_t kMaxSamplingIds = 4 << 20;    // histories and banned ids of a step

KvScaling scaling_of(const DecoderSource& source, const CudaModelOptions& options) {
  if (!options.f8_kv) return KvScaling::kNone;
  if (options.f8_page_scales) return KvScaling::kPage;
  return source.kv_scales().empty() ? KvScaling::kNone : KvScaling::kLayer;
}

std::optional<DraftPlanes> draft_planes(const CudaModelOptions& options) {
  if (!options.draft_room.has_value()) return {};
  return DraftPlanes{*options.draft_room, options.dtype};
}

}  // namespace

CudaModel::CudaModel(DecoderSource& source, const CudaModelOptions& options, device::Device& device)
    : config_(source.config()),
      info_(source.info()),
      options_(options),
      device_(device),
      scaling_(scaling_of(source, options)),
      layout_(gqa_layout(config_, options.f8_kv ? DType::kF8E4M3 : options.dtype, options.page_size_tokens, scaling_,
                         draft_planes(options))) {}

Status CudaModel::open(DecoderSource& source) {
  Lap lap;
  LEVADA_ASSIGN_OR_RETURN(stream_, device_.make_stream());
  LEVADA_ASSIGN_OR_RETURN(weights_, CudaWeights::load(source, options_.dtype, device_));
  const std::string weights_time = lap();
  LEVADA_ASSIGN_OR_RETURN(
      linears_, cuda::Linears::create({.max_rows = kMaxStepRows,
                                       .max_norm_width = config_.hidden,
                                       .max_pair_width = std::max(2 * config_.intermediate, weights_.f8_outputs()),
                                       .max_f8_width = weights_.f8_inputs(),
                                       .dtype = options_.dtype}));
  LEVADA_ASSIGN_OR_RETURN(attention_, cuda::PagedAttention::create(
                                          device_, static_cast<int>(config_.heads), static_cast<int>(config_.kv_heads),
                                          static_cast<int>(config_.head_dim), std::max(options_.max_graph_rows, 1)));
  LEVADA_RETURN_IF_ERROR(make_flash());
  LEVADA_ASSIGN_OR_RETURN(eager_layers_, CudaLayers::make(config_, weights_, options_.dtype, kMaxStepRows, *linears_,
                                                          *attention_, device_));
  if (!expanded_table_.empty()) {
    LEVADA_RETURN_IF_ERROR(eager_layers_->make_expanded_pages(static_cast<std::int32_t>(expanded_table_.size()),
                                                              options_.page_size_tokens, device_));
  }
  LEVADA_ASSIGN_OR_RETURN(graph_layers_,
                          CudaLayers::make(config_, weights_, options_.dtype, std::max(options_.max_graph_rows, 1),
                                           *linears_, *attention_, device_));
  const auto blocks = static_cast<std::int32_t>(options_.draft_room.has_value() ? kMaxSamples : 0);
  const StepSize eager{static_cast<std::int32_t>(kMaxStepRows), blocks};
  const StepSize recorded{options_.max_graph_rows, std::min(options_.max_graph_rows, blocks)};
  LEVADA_ASSIGN_OR_RETURN(eager_inputs_, StepInputs::make(device_, eager, kMaxTableEntries));
  LEVADA_ASSIGN_OR_RETURN(graph_inputs_, StepInputs::make(device_, recorded, kMaxTableEntries));
  LEVADA_ASSIGN_OR_RETURN(logits_, device_.allocate(static_cast<std::size_t>(kMaxSamples * config_.vocabulary) * 4));
  const std::int64_t most_tokens =
      kMaxSamples * (options_.draft_room.has_value() ? options_.draft_room->block_size : 1);
  LEVADA_ASSIGN_OR_RETURN(samples_, device_.allocate(static_cast<std::size_t>(most_tokens) * 4));
  LEVADA_ASSIGN_OR_RETURN(sampler_, cuda::Sampler::create(device_, static_cast<std::int32_t>(kMaxSamples),
                                                          config_.vocabulary, kMaxSamplingIds));
  results_ = std::make_shared<ResultSlots>(device_, most_tokens);
  LEVADA_RETURN_IF_ERROR(make_drafter());
  const std::string workspaces_time = lap();
  WarmupCount plans;
  if (!options_.warmup_folder.empty()) {
    LEVADA_ASSIGN_OR_RETURN(
        plans, warm_up(options_.warmup_folder, warmup_key(config_, options_.dtype, device_.name()),
                       options_.max_graph_rows, *eager_layers_, *linears_, logits_of(kMaxSamples), stream()));
  }
  if (options_.f8_kv && scaling_ == KvScaling::kNone) {
    LEVADA_LOG_INFO("the checkpoint has no scales for its float8 KV cache: numbers beyond 448 saturate");
  }
  LEVADA_LOG_INFO("CUDA start: weights ", weights_time, ", workspaces ", workspaces_time, ", product plans ", lap(),
                  " (", plans.from_manifest, " plans from manifest, ", plans.measured, " measured)");
  return {};
}

Status CudaModel::make_flash() {
  cuda::FlashShape shape{.heads = static_cast<int>(config_.heads),
                         .kv_heads = static_cast<int>(config_.kv_heads),
                         .head_dim = static_cast<int>(config_.head_dim),
                         .page_size = options_.page_size_tokens,
                         .dtype = options_.dtype,
                         .max_rows = kMaxStepRows,
                         .max_padded_rows = 0,
                         .max_pages = kMaxTableEntries,
                         .f8_kv = options_.f8_kv && scaling_ != KvScaling::kPage};
  if (!cuda::FlashAttention::supports(shape)) {
    LEVADA_LOG_WARNING(
        "prompts are attended row by row, slowly: the tensor-core kernel takes bfloat16, float16 and heads of 64 or "
        "128 over a KV cache of the same type (bfloat16 over float8, too), not ",
        to_string(options_.dtype), " and ", config_.head_dim, options_.f8_kv ? " over float8" : "");
    return {};
  }
  LEVADA_ASSIGN_OR_RETURN(flash_, cuda::FlashAttention::create(device_, shape));
  if (scaling_ == KvScaling::kPage) {
    LEVADA_LOG_INFO("the tensor-core kernel takes no scales of each page: it attends prompts over pages widened to ",
                    to_string(options_.dtype), ", at most ", kMaxExpandedTokens,
                    " tokens of them a step (larger steps go row by row, slowly); answers go row by row");
    expanded_table_.resize(static_cast<std::size_t>(kMaxExpandedTokens / options_.page_size_tokens));
    std::iota(expanded_table_.begin(), expanded_table_.end(), 0);
    return {};
  }
  shape.max_rows = shape.max_padded_rows = std::max(options_.max_graph_rows, 1);
  LEVADA_ASSIGN_OR_RETURN(decode_flash_, cuda::FlashAttention::create(device_, shape));
  return {};
}

Status CudaModel::make_drafter() {
  if (!options_.draft_room.has_value()) return {};
  LEVADA_CHECK(options_.drafts != nullptr, "room for drafts comes with what opens them");
  static_assert(kMaxSamples >= CudaDrafter::kMaxBlockRows, "logits for every row of the blocks");
  const CudaDrafter::Target target{.config = config_,
                                   .weights = weights_,
                                   .layout = layout_,
                                   .linears = *linears_,
                                   .logits = static_cast<float*>(logits_->data()),
                                   .dtype = options_.dtype,
                                   .context = info_.context_length_tokens,
                                   .max_rows = kMaxStepRows,
                                   .max_split_rows = std::max(options_.max_graph_rows, 1)};
  LEVADA_ASSIGN_OR_RETURN(drafter_, CudaDrafter::make(target, *options_.draft_room, options_.drafts, device_));
  return {};
}

Result<std::shared_ptr<const Draft>> CudaModel::load_draft(const std::filesystem::path& folder) {
  if (drafter_ == nullptr) return resource_exhausted("this model was loaded without room for drafts");
  return drafter_->load(folder);
}

std::string CudaModel::scaling_name() const {
  if (scaling_ == KvScaling::kPage) return "with scales of each page";
  return scaling_ == KvScaling::kLayer ? "with the checkpoint's scales" : "without scales";
}

std::string CudaModel::backend() const {
  return "cuda " + device_.name() + ", " + std::to_string(graphs_.size()) + " decode graphs" +
         (weights_.f8_inputs() > 0 ? ", float8 weights" : "") +
         (options_.f8_kv ? ", float8 KV cache " + scaling_name() : "");
}

std::vector<MemoryUse> CudaModel::memory() const {
  const auto bytes = [](auto value) { return static_cast<std::int64_t>(value); };
  std::vector<MemoryUse> uses{
      {"weights", weights_.bytes()},
      {"product workspace", bytes(linears_->bytes())},
      {"attention workspace",
       bytes(attention_->bytes()) + (flash_ ? flash_->bytes() : 0) + (decode_flash_ ? decode_flash_->bytes() : 0)},
      {"activations", eager_layers_->bytes() + graph_layers_->bytes()},
      {"step inputs", eager_inputs_.bytes() + graph_inputs_.bytes()},
      {"logits and samples", bytes(logits_->size_bytes() + samples_->size_bytes()) + sampler_->bytes()},
      {"decode graphs", graph_bytes_}};
  if (drafter_ != nullptr) uses.push_back({"draft in use", drafter_->bytes()});
  return uses;
}

Result<std::unique_ptr<KvPool>> CudaModel::make_kv_pool(std::int32_t pages) {
  Lap lap;
  LEVADA_ASSIGN_OR_RETURN(std::unique_ptr<PagedKvPool> pool, PagedKvPool::make(layout_, pages, device_));
  const std::string pool_time = lap();
  const std::int64_t free_before = device_.free_bytes();
  if (graph_pool_ == nullptr && options_.max_graph_rows > 0) {
    LEVADA_RETURN_IF_ERROR(record_graphs(*pool));
    graph_pool_ = pool.get();
    graph_bytes_ = std::max<std::int64_t>(0, free_before - device_.free_bytes());
    LEVADA_LOG_INFO("CUDA start: KV pool ", pool_time, ", ", graphs_.size(), " decode graphs ", lap());
  }
  return std::unique_ptr<KvPool>(std::move(pool));
}

}  // namespace levada::model

extern "C" __attribute__((visibility("default"))) void levada_make_cuda_model(
    levada::model::DecoderSource& source, const levada::model::CudaModelOptions& options,
    levada::device::Device& device, levada::Result<std::unique_ptr<levada::model::Model>>* result) {
  auto model = std::make_unique<levada::model::CudaModel>(source, options, device);
  if (levada::Status opened = model->open(source); !opened.ok()) {
    *result = opened;
  } else {
    *result = std::unique_ptr<levada::model::Model>(std::move(model));
  }
}
