#include "model/cuda/cuda_drafter.h"

#include <algorithm>

#include "base/log.h"
#include "kernels/cuda/rows.h"

namespace levada::model {

using device::DeviceKind;
using device::TensorView;
namespace cuda = kernels::cuda;

namespace {

constexpr std::int64_t kContextRows = 2048;  // whose keys and values are made at once
constexpr std::int32_t kBlockArrays = 9;

TensorView ints(std::int32_t* data, std::int64_t count) {
  return TensorView::of(data, DType::kI32, {count}, DeviceKind::kCuda);
}

int first_draft_plane(const core::KvLayout& layout) {
  const auto& planes = layout.planes();
  const auto found =
      std::find_if(planes.begin(), planes.end(), [](const auto& p) { return p.group == core::kDraftGroup; });
  LEVADA_CHECK(found != planes.end(), "a layout with planes for a draft");
  return static_cast<int>(found - planes.begin());
}

cuda::BlockArrays block_arrays(const device::DeviceBuffer& buffer) {
  std::int32_t* at[kBlockArrays];
  for (int i = 0; i < kBlockArrays; ++i) {
    at[i] = static_cast<std::int32_t*>(buffer.data()) + i * CudaDrafter::kMaxBlockRows;
  }
  return {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8]};
}

// As a decoder of the draft's geometry would be described.
ModelConfig decoder_like(const DraftConfig& draft) {
  ModelConfig config;
  config.hidden = draft.hidden;
  config.layers = draft.layers;
  config.heads = draft.heads;
  config.kv_heads = draft.kv_heads;
  config.head_dim = draft.head_dim;
  config.intermediate = draft.intermediate;
  config.vocabulary = draft.vocabulary;
  config.norm_eps = static_cast<float>(draft.norm_eps);
  config.qk_norm = true;
  return config;
}

}  // namespace

Result<std::unique_ptr<CudaDrafter>> CudaDrafter::make(const Target& target, const DraftRoom& room,
                                                       std::shared_ptr<const DraftOpener> opener,
                                                       device::Device& device) {
  std::unique_ptr<CudaDrafter> drafter(new CudaDrafter(target, room, std::move(opener), device));
  LEVADA_RETURN_IF_ERROR(drafter->allocate());
  return drafter;
}

Status CudaDrafter::allocate() {
  first_plane_ = first_draft_plane(target_.layout);
  const std::int64_t hidden = target_.config.hidden, size = static_cast<std::int64_t>(bytes_of(target_.dtype));
  const auto allocate = [&](std::int64_t bytes) { return device_.allocate(static_cast<std::size_t>(bytes)); };
  LEVADA_ASSIGN_OR_RETURN(live_, allocate(most_draft_bytes(room_, hidden, target_.dtype, target_.context)));
  LEVADA_ASSIGN_OR_RETURN(context_, allocate(target_.max_rows * hidden * size));
  LEVADA_ASSIGN_OR_RETURN(keys_, allocate(kContextRows * room_.layers * 2 * room_.kv_width * size));
  LEVADA_ASSIGN_OR_RETURN(blocks_, allocate(std::int64_t{kBlockArrays} * kMaxBlockRows * 4));
  LEVADA_ASSIGN_OR_RETURN(largest_, cuda::Sampler::create(device_, kMaxBlockRows, target_.config.vocabulary, 0));
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device_.make_stream());
  LEVADA_RETURN_IF_ERROR(largest_->upload({}, kMaxBlockRows, *stream));  // once: every row takes its largest
  return stream->synchronize();
}

std::int64_t CudaDrafter::bytes() const {
  std::size_t sum = live_->size_bytes() + context_->size_bytes() + keys_->size_bytes() + blocks_->size_bytes();
  if (attention_ != nullptr) sum += attention_->bytes();
  return static_cast<std::int64_t>(sum) + largest_->bytes() + (layers_ != nullptr ? layers_->bytes() : 0);
}

Result<std::shared_ptr<const Draft>> CudaDrafter::load(const std::filesystem::path& folder) {
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<DraftSource> source, opener_->open(folder));
  const DraftConfig& config = source->config();
  if (config.intermediate > target_.config.intermediate) {
    return resource_exhausted(folder.string() + ": intermediate_size " + std::to_string(config.intermediate) +
                              "; on CUDA there is room for the target's, " +
                              std::to_string(target_.config.intermediate));
  }
  LEVADA_ASSIGN_OR_RETURN(std::shared_ptr<const CudaDraft> draft,
                          CudaDraft::load(*source, target_.dtype, target_.context, device_, recording_));
  if (draft->bytes() > static_cast<std::int64_t>(live_->size_bytes())) {
    return resource_exhausted(folder.string() + ": " + std::to_string(draft->bytes()) +
                              " bytes on the device; there is room for " + std::to_string(live_->size_bytes()));
  }
  return std::shared_ptr<const Draft>(std::move(draft));
}

Result<bool> CudaDrafter::use(const std::shared_ptr<const Draft>& draft, device::Stream& stream) {
  if (draft == draft_) return false;
  const auto* own = dynamic_cast<const CudaDraft*>(draft.get());
  LEVADA_CHECK(own != nullptr, "a draft loaded by this model");
  const bool other = draft_ == nullptr || !same_geometry(config_, own->config());
  if (other) {
    LEVADA_RETURN_IF_ERROR(stream.synchronize());  // steps with the draft before use what goes now
    draft_ = nullptr;
    LEVADA_RETURN_IF_ERROR(take_geometry(own->config()));
  }
  LEVADA_RETURN_IF_ERROR(stream.copy(live_->data(), own->data(), static_cast<std::size_t>(own->bytes())));
  draft_ = draft;
  return other;
}

Status CudaDrafter::take_geometry(const DraftConfig& config) {
  layers_ = nullptr;
  attention_ = nullptr;
  config_ = config;
  block_config_ = decoder_like(config);
  std::int64_t bytes = 0;
  tensors_ = lay_out(config, target_.dtype, target_.context, static_cast<std::byte*>(live_->data()), bytes);
  tensors_.block.embedding = target_.weights.embedding;
  tensors_.block.head = target_.weights.head;
  LEVADA_ASSIGN_OR_RETURN(attention_, cuda::PagedAttention::create(
                                          device_, static_cast<int>(config.heads), static_cast<int>(config.kv_heads),
                                          static_cast<int>(config.head_dim), target_.max_split_rows));
  LEVADA_ASSIGN_OR_RETURN(layers_, CudaLayers::make(block_config_, tensors_.block, target_.dtype, kMaxBlockRows,
                                                    target_.linears, *attention_, device_, first_plane_));
  LEVADA_LOG_INFO("drafts of ", config.layers, " layers and blocks of ", config.block_size,
                  ": step graphs with them are recorded when they first come");
  return {};
}

TensorView CudaDrafter::context_rows(std::int64_t first, std::int64_t rows) const {
  const std::int64_t hidden = config_.hidden;
  std::byte* const at =
      static_cast<std::byte*>(context_->data()) + first * hidden * static_cast<std::int64_t>(bytes_of(target_.dtype));
  return TensorView::of(at, target_.dtype, {rows, hidden}, DeviceKind::kCuda);
}

Status CudaDrafter::after_layer(int layer, const TensorView& hidden, cudaStream_t stream) {
  const std::vector<std::int64_t>& ids = config_.target_layer_ids;
  const auto found = std::find(ids.begin(), ids.end(), layer);
  if (found == ids.end()) return {};
  const bool is_first = *std::min_element(ids.begin(), ids.end()) == layer;
  return target_.linears.run({.x = hidden,
                              .w = tensors_.fc[static_cast<std::size_t>(found - ids.begin())],
                              .w_scale = {},
                              .norm = {},
                              .end = is_first ? cuda::LinearEnd::kStore : cuda::LinearEnd::kAdd,
                              .out = context_rows(0, hidden.shape[0])},
                             stream);
}

Status CudaDrafter::write_context(const StepArrays& arrays, std::int32_t rows, const PagedKvPool& pool,
                                  cudaStream_t stream) {
  const auto plane = [&](int which) {
    return heads_of(pool.plane(first_plane_ + which, 0), config_.kv_heads, config_.head_dim);
  };
  const std::int64_t width = tensors_.context_kv.shape[0];
  for (std::int64_t first = 0; first < rows; first += kContextRows) {
    const std::int64_t count = std::min(kContextRows, rows - first);
    const TensorView keys = TensorView::of(keys_->data(), target_.dtype, {count, width}, DeviceKind::kCuda);
    LEVADA_RETURN_IF_ERROR(target_.linears.run({.x = context_rows(first, count),
                                                .w = tensors_.context_kv,
                                                .w_scale = {},
                                                .norm = tensors_.hidden_norm,
                                                .eps = block_config_.norm_eps,
                                                .out = keys},
                                               stream));
    LEVADA_RETURN_IF_ERROR(cuda::rope_append({.qkv = keys,
                                              .heads = 0,
                                              .kv_heads = static_cast<int>(config_.kv_heads),
                                              .head_dim = static_cast<int>(config_.head_dim),
                                              .q_norm = {},
                                              .k_norm = tensors_.context_k_norm,
                                              .eps = block_config_.norm_eps,
                                              .cos_sin = tensors_.block.cos_sin,
                                              .positions = ints(arrays.positions + first, count),
                                              .slots = ints(arrays.slots + first, count),
                                              .k_plane = plane(0),
                                              .v_plane = plane(1),
                                              .scales = {},
                                              .layers = static_cast<int>(config_.layers)},
                                             stream));
  }
  return {};
}

Status CudaDrafter::propose(const StepArrays& arrays, std::int32_t blocks, std::int32_t block_rows,
                            const std::int32_t* samples, std::int32_t* proposed, const PagedKvPool& pool,
                            cudaStream_t stream) {
  if (blocks == 0) return {};
  LEVADA_CHECK(block_rows >= 2 && block_rows <= kMaxBlockRows, "blocks of some masks");
  const std::int32_t most = kMaxBlockRows / block_rows;
  for (std::int32_t first = 0; first < blocks; first += most) {
    LEVADA_RETURN_IF_ERROR(propose_some(arrays, first, std::min(most, blocks - first), block_rows, samples,
                                        proposed + std::int64_t{first} * (block_rows - 1), pool, stream));
  }
  return {};
}

Status CudaDrafter::propose_some(const StepArrays& arrays, std::int32_t first, std::int32_t blocks,
                                 std::int32_t block_rows, const std::int32_t* samples, std::int32_t* proposed,
                                 const PagedKvPool& pool, cudaStream_t stream) {
  const cuda::BlockArrays rows_of = block_arrays(*blocks_);
  LEVADA_RETURN_IF_ERROR(cuda::begin_draft_blocks({.requests = arrays.drafting + first,
                                                   .count = blocks,
                                                   .rows = block_rows,
                                                   .samples = samples,
                                                   .ids = arrays.ids,
                                                   .block_tables = arrays.block_tables,
                                                   .mask_id = static_cast<std::int32_t>(config_.mask_token_id),
                                                   .page_size = target_.layout.page_size_tokens(),
                                                   .window = static_cast<std::int32_t>(config_.sliding_window),
                                                   .out = rows_of},
                                                  stream));
  StepArrays full;
  full.ids = rows_of.ids;
  full.positions = rows_of.positions;
  full.slots = rows_of.slots;
  full.lengths = rows_of.lengths;
  full.table_first = rows_of.table_first;
  full.sample_rows = rows_of.guessing_rows;
  full.block_tables = arrays.block_tables;
  full.starts = rows_of.starts;
  StepArrays sliding = full;
  sliding.lengths = rows_of.sliding_lengths;
  sliding.starts = rows_of.sliding_starts;

  const std::int32_t rows = blocks * block_rows, guesses = blocks * (block_rows - 1);
  LEVADA_RETURN_IF_ERROR(layers_->embed(full, rows, nullptr, stream));
  for (std::int64_t l = 0; l < config_.layers; ++l) {
    const StepArrays& own = config_.sliding[static_cast<std::size_t>(l)] ? sliding : full;
    LEVADA_RETURN_IF_ERROR(layers_->layer(static_cast<int>(l), own, rows, pool, nullptr, stream));
  }
  const TensorView logits =
      TensorView::of(target_.logits, DType::kF32, {guesses, target_.config.vocabulary}, DeviceKind::kCuda);
  LEVADA_RETURN_IF_ERROR(layers_->logits(full, rows, logits, stream));
  return largest_->run(logits, nullptr, ints(proposed, guesses), stream);
}

}  // namespace levada::model
