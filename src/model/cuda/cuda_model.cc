// The Model behind --device cuda: weights, workspaces, recorded decode steps, and the steps that run ahead of their tokens.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/lap.h"
#include "base/log.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sampling.h"
#include "model/cuda/cuda_layers.h"
#include "model/cuda/decode_graphs.h"
#include "model/cuda/result_slots.h"
#include "model/cuda/warmup.h"
#include "model/host_sampling.h"
#include "model/step_geometry.h"

namespace levada::model {

using device::DeviceKind;
using device::TensorView;
namespace cuda = kernels::cuda;

namespace {

constexpr std::int64_t kMaxStepRows = 16'384 + 1024;  // the largest chunk, and decode rows beside it
constexpr std::int64_t kMaxTableEntries = 1 << 20;
constexpr std::int32_t kMaxExpandedTokens = 65'536;  // whose pages of a float8 cache are widened for one step
constexpr std::int64_t kMaxSamples = 1024;
constexpr std::int64_t kMaxSamplingIds = 4 << 20;  // histories and banned ids of a step
// Decode rows that are fewer, or whose contexts are shorter on average, are faster one by one.
constexpr std::int32_t kMinFlashRows = 16, kMinFlashTokens = 512;

KvScaling scaling_of(const DecoderSource& source, const CudaModelOptions& options) {
  if (!options.f8_kv) return KvScaling::kNone;
  if (options.f8_page_scales) return KvScaling::kPage;
  return source.kv_scales().empty() ? KvScaling::kNone : KvScaling::kLayer;
}

class CudaModel final : public Model {
 public:
  CudaModel(DecoderSource& source, const CudaModelOptions& options, device::Device& device)
      : config_(source.config()),
        info_(source.info()),
        options_(options),
        device_(device),
        scaling_(scaling_of(source, options)),
        layout_(
            gqa_layout(config_, options.f8_kv ? DType::kF8E4M3 : options.dtype, options.page_size_tokens, scaling_)) {}

  Status open(DecoderSource& source);

  const core::ModelInfo& info() const override { return info_; }
  const device::Device& device() const override { return device_; }
  const core::KvLayout& kv_layout() const override { return layout_; }
  std::string backend() const override {
    return "cuda " + device_.name() + ", " + std::to_string(row_graphs_.size() + flash_graphs_.size()) +
           " decode graphs" + (weights_.f8_inputs() > 0 ? ", float8 weights" : "") +
           (options_.f8_kv ? ", float8 KV cache " + scaling_name() : "");
  }
  bool runs_ahead() const override { return true; }
  Status health() const override { return device_.health(); }
  std::vector<MemoryUse> memory() const override;
  Result<std::unique_ptr<KvPool>> make_kv_pool(std::int32_t pages) override;
  Result<std::shared_ptr<const Draft>> load_draft(const std::filesystem::path&) override {
    return Status(StatusCode::kUnavailable, "drafts are not served on CUDA yet");
  }
  Result<std::unique_ptr<Forward>> begin(const core::StepPlan& plan, KvPool& pool,
                                         const std::shared_ptr<const Draft>& draft) override;

 private:
  friend class CudaForward;
  std::string scaling_name() const {
    if (scaling_ == KvScaling::kPage) return "with scales of each page";
    return scaling_ == KvScaling::kLayer ? "with the checkpoint's scales" : "without scales";
  }
  bool may_expand(const core::StepPlan& plan) const { return plan.block_tables.size() <= expanded_table_.size(); }
  // Where there is such a kernel; else says so.
  Status make_flash();
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_->native_handle()); }
  // The rows of the graph that can run this plan, or 0.
  std::int32_t graph_rows(const core::StepPlan& plan, const KvPool& pool) const;
  // How a step runs: through the graph of `rows` rows of `graphs`, or launch by launch (null). What attends its rows,
  // `rows_each` for every request; null: row by row.
  struct Way {
    const DecodeGraphs* graphs = nullptr;
    std::int32_t rows = 0, rows_each = 1;
    cuda::FlashAttention* flash = nullptr;
  };
  Result<Way> way_of(const core::StepPlan& plan, const PagedKvPool& pool);
  // The graph for `requests` requests of `rows_each` rows, recorded if it isn't yet; its rows, 0 if it would be too large.
  Result<std::int32_t> verify_graph(std::int32_t requests, std::int32_t rows_each, const PagedKvPool& pool);
  // What a graph of so many rows is recorded over: padding alone, which names no token, changes no KV.
  Status send_padding(std::int32_t rows, cuda::FlashAttention* flash, std::int32_t rows_each);
  Status record_graphs(PagedKvPool& pool);
  Status decode_launches(std::int32_t rows, const PagedKvPool& pool, cuda::FlashAttention* flash);
  // How to choose the step's tokens, to the device.
  Status send_sampling(const core::StepPlan& plan, std::int32_t padded_rows);
  TensorView logits_of(std::int64_t count) const {
    return TensorView::of(logits_->data(), DType::kF32, {count, config_.vocabulary}, DeviceKind::kCuda);
  }
  TensorView samples_of(std::int64_t count) const {
    return TensorView::of(samples_->data(), DType::kI32, {count}, DeviceKind::kCuda);
  }

  const ModelConfig config_;
  const core::ModelInfo info_;
  const CudaModelOptions options_;
  device::Device& device_;
  const KvScaling scaling_;
  const core::KvLayout layout_;
  std::unique_ptr<device::Stream> stream_;
  CudaWeights weights_;
  std::unique_ptr<cuda::Linears> linears_;
  std::unique_ptr<cuda::PagedAttention> attention_;
  std::unique_ptr<cuda::FlashAttention> flash_, decode_flash_;  // null where there is no such kernel
  std::vector<std::int32_t> expanded_table_;  // 0, 1, 2 … : widened pages lie as the step names them
  std::unique_ptr<CudaLayers> eager_layers_, graph_layers_;
  StepInputs eager_inputs_, graph_inputs_;
  std::unique_ptr<device::DeviceBuffer> logits_, samples_;  // f32 [kMaxSamples, V], i32 [kMaxSamples]
  std::shared_ptr<ResultSlots> results_;
  std::unique_ptr<cuda::Sampler> sampler_;
  DecodeGraphs row_graphs_, flash_graphs_;  // the latter from kMinFlashRows on, where there is such a kernel
  std::map<std::int32_t, DecodeGraphs> verify_graphs_;  // by rows for each request
  const KvPool* graph_pool_ = nullptr;
  std::int64_t graph_bytes_ = 0;  // what recording took of the device, modules loaded by it included
  std::size_t sampled_ = 0;       // by the step begun last: what plan.future_tokens may name
};

class CudaForward final : public Forward {
 public:
  CudaForward(CudaModel& model, const core::StepPlan& plan, PagedKvPool& pool, const CudaModel::Way& way,
              StepArrays arrays)
      : model_(model),
        plan_(plan),
        pool_(pool),
        way_(way),
        rows_(static_cast<std::int32_t>(plan.tokens.size())),
        arrays_(arrays) {}

  Status layer(int layer) override {
    LEVADA_CHECK(layer == next_layer_ && layer < model_.config_.layers, "layers run in order, each once");
    if (layer == 0) LEVADA_RETURN_IF_ERROR(layers().embed(arrays_, rows_, samples(), model_.stream()));
    ++next_layer_;
    return layers().layer(layer, arrays_, rows_, pool_, way_.flash, model_.stream());
  }

  Status all_layers() override {
    if (way_.graphs != nullptr) {
      next_layer_ = static_cast<int>(model_.config_.layers);
      return way_.graphs->replay(way_.rows, model_.stream());
    }
    for (int l = 0; l < model_.config_.layers; ++l) LEVADA_RETURN_IF_ERROR(layer(l));
    return {};
  }

  TensorView hidden() const override { return layers().hidden(rows_); }

  Result<DeviceRows> device_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
    LEVADA_CHECK(first >= 0 && count > 0 && first + count <= rows_, "rows of this step");
    LEVADA_CHECK(!final_norm || next_layer_ == model_.config_.layers, "the final norm reads the last layer");
    LEVADA_ASSIGN_OR_RETURN(const TensorView rows, layers().states(first, count, final_norm, model_.stream()));
    return DeviceRows{rows, model_.stream_.get()};
  }

  Result<TensorView> host_rows(std::int32_t first, std::int32_t count, bool final_norm) override {
    LEVADA_ASSIGN_OR_RETURN(const DeviceRows here, device_rows(first, count, final_norm));
    const std::int64_t width = model_.config_.hidden;
    LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<device::DeviceBuffer> wide,
                            model_.device_.allocate(static_cast<std::size_t>(count * width) * sizeof(float)));
    const TensorView out = TensorView::of(wide->data(), DType::kF32, {count, width}, DeviceKind::kCuda);
    LEVADA_RETURN_IF_ERROR(cuda::convert(here.rows, out, model_.stream()));
    return to_host(out);
  }

  Result<TensorView> logits(std::span<const std::int32_t> rows) override {
    for (std::int32_t row : rows) LEVADA_CHECK(row >= 0 && row < rows_, "logits of a row of this step");
    LEVADA_CHECK(static_cast<std::int64_t>(rows.size()) <= std::min(std::int64_t{rows_}, kMaxSamples), "each once");
    LEVADA_RETURN_IF_ERROR(model_.stream_->copy(arrays_.sample_rows, rows.data(), rows.size_bytes()));
    const TensorView out = model_.logits_of(static_cast<std::int64_t>(rows.size()));
    LEVADA_RETURN_IF_ERROR(layers().logits(arrays_, rows_, out, model_.stream()));
    return to_host(out);
  }

  Result<std::unique_ptr<SampledTokens>> sample() override {
    const std::size_t count = plan_.samples.size();
    const auto n = static_cast<std::int64_t>(count);
    if (way_.graphs == nullptr && count > 0) {
      LEVADA_RETURN_IF_ERROR(layers().logits(arrays_, rows_, model_.logits_of(n), model_.stream()));
      LEVADA_RETURN_IF_ERROR(
          model_.sampler_->run(model_.logits_of(n), arrays_.ids, model_.samples_of(n), model_.stream()));
    }
    model_.sampled_ = count;
    return model_.results_->send(static_cast<const std::int32_t*>(model_.samples_->data()), count, *model_.stream_);
  }

 private:
  CudaLayers& layers() const { return way_.graphs != nullptr ? *model_.graph_layers_ : *model_.eager_layers_; }
  const std::int32_t* samples() const { return static_cast<const std::int32_t*>(model_.samples_->data()); }

  Result<TensorView> to_host(const TensorView& from) {
    host_.resize(static_cast<std::size_t>(from.elements()));
    LEVADA_RETURN_IF_ERROR(model_.stream_->copy(host_.data(), from.data, host_.size() * sizeof(float)));
    LEVADA_RETURN_IF_ERROR(model_.stream_->synchronize());
    return TensorView::of(host_.data(), DType::kF32, {from.shape[0], from.shape[1]});
  }

  CudaModel& model_;
  const core::StepPlan& plan_;
  PagedKvPool& pool_;
  const CudaModel::Way way_;  // its kernel is planned for this step
  const std::int32_t rows_;
  const StepArrays arrays_;
  std::vector<float> host_;
  int next_layer_ = 0;
};

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
  LEVADA_ASSIGN_OR_RETURN(eager_inputs_, StepInputs::make(device_, kMaxStepRows, kMaxTableEntries));
  LEVADA_ASSIGN_OR_RETURN(graph_inputs_, StepInputs::make(device_, options_.max_graph_rows, kMaxTableEntries));
  LEVADA_ASSIGN_OR_RETURN(logits_, device_.allocate(static_cast<std::size_t>(kMaxSamples * config_.vocabulary) * 4));
  LEVADA_ASSIGN_OR_RETURN(samples_, device_.allocate(kMaxSamples * 4));
  LEVADA_ASSIGN_OR_RETURN(sampler_, cuda::Sampler::create(device_, static_cast<std::int32_t>(kMaxSamples),
                                                          config_.vocabulary, kMaxSamplingIds));
  results_ = std::make_shared<ResultSlots>(device_, kMaxSamples);
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

std::vector<MemoryUse> CudaModel::memory() const {
  const auto bytes = [](auto value) { return static_cast<std::int64_t>(value); };
  return {{"weights", weights_.bytes()},
          {"product workspace", bytes(linears_->bytes())},
          {"attention workspace",
           bytes(attention_->bytes()) + (flash_ ? flash_->bytes() : 0) + (decode_flash_ ? decode_flash_->bytes() : 0)},
          {"activations", eager_layers_->bytes() + graph_layers_->bytes()},
          {"step inputs", eager_inputs_.bytes() + graph_inputs_.bytes()},
          {"logits and samples", bytes(logits_->size_bytes() + samples_->size_bytes()) + sampler_->bytes()},
          {"decode graphs", graph_bytes_}};
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
    LEVADA_LOG_INFO("CUDA start: KV pool ", pool_time, ", ", row_graphs_.size() + flash_graphs_.size(),
                    " decode graphs ", lap());
  }
  return std::unique_ptr<KvPool>(std::move(pool));
}

Status CudaModel::send_padding(std::int32_t rows, cuda::FlashAttention* flash, std::int32_t rows_each) {
  const core::StepPlan nothing;
  LEVADA_RETURN_IF_ERROR(graph_inputs_.upload(nothing, rows, layout_.page_size_tokens(), *stream_).status());
  LEVADA_RETURN_IF_ERROR(sampler_->upload({}, rows, *stream_));
  if (flash == nullptr) return {};
  kernels::PagedBatch padding;
  padding.page_size = layout_.page_size_tokens();
  return flash->plan(padding, rows, *stream_, rows_each);
}

Status CudaModel::record_graphs(PagedKvPool& pool) {
  const auto record = [&](DecodeGraphs& graphs, std::int32_t min_rows, cuda::FlashAttention* flash) {
    return graphs.record(
        min_rows, options_.max_graph_rows, [&](std::int32_t rows) { return send_padding(rows, flash, 1); },
        [&](std::int32_t rows) { return decode_launches(rows, pool, flash); }, stream());
  };
  LEVADA_RETURN_IF_ERROR(record(row_graphs_, 1, nullptr));
  if (decode_flash_ == nullptr) return {};
  return record(flash_graphs_, kMinFlashRows, decode_flash_.get());
}

Status CudaModel::decode_launches(std::int32_t rows, const PagedKvPool& pool, cuda::FlashAttention* flash) {
  const StepArrays arrays = graph_inputs_.arrays(rows);
  LEVADA_RETURN_IF_ERROR(
      graph_layers_->embed(arrays, rows, static_cast<const std::int32_t*>(samples_->data()), stream()));
  for (int l = 0; l < config_.layers; ++l) {
    LEVADA_RETURN_IF_ERROR(graph_layers_->layer(l, arrays, rows, pool, flash, stream()));
  }
  LEVADA_RETURN_IF_ERROR(graph_layers_->logits(arrays, rows, logits_of(rows), stream()));
  return sampler_->run(logits_of(rows), arrays.ids, samples_of(rows), stream());
}

std::int32_t CudaModel::graph_rows(const core::StepPlan& plan, const KvPool& pool) const {
  if (&pool != graph_pool_ || !plan.captures.empty() || plan.samples.size() != plan.tokens.size()) return 0;
  for (std::size_t i = 0; i < plan.samples.size(); ++i) {
    if (plan.samples[i].row != static_cast<std::int32_t>(i)) return 0;
  }
  const std::int32_t bucket = row_graphs_.bucket_for(static_cast<std::int32_t>(plan.tokens.size()));
  return bucket > 0 && graph_inputs_.fits(plan, bucket) ? bucket : 0;
}

// The number of rows that every slice has; 0 if they differ.
std::int32_t rows_of_each(const core::StepPlan& plan) {
  const std::int32_t each = plan.slices.empty() ? 0 : plan.slices.front().range.count;
  const bool alike = std::all_of(plan.slices.begin(), plan.slices.end(),
                                 [&](const core::PlanSlice& slice) { return slice.range.count == each; });
  return alike ? each : 0;
}

Result<CudaModel::Way> CudaModel::way_of(const core::StepPlan& plan, const PagedKvPool& pool) {
  const std::int32_t rows = graph_rows(plan, pool);
  if (rows == 0) {
    const bool chunks = plan.tokens.size() > plan.slices.size();
    return Way{.flash = chunks && (scaling_ != KvScaling::kPage || may_expand(plan)) ? flash_.get() : nullptr};
  }
  Way way{.graphs = &row_graphs_, .rows = rows};
  std::int64_t tokens = 0;
  for (const core::PlanSlice& slice : plan.slices) tokens += slice.range.first + slice.range.count;
  const std::int32_t each = rows_of_each(plan), requests = static_cast<std::int32_t>(plan.slices.size());
  if (decode_flash_ == nullptr) return way;
  if (each == 1 && rows >= kMinFlashRows && tokens >= std::int64_t{rows} * kMinFlashTokens) {
    return Way{.graphs = &flash_graphs_, .rows = rows, .flash = decode_flash_.get()};
  }
  if (each > 1 && each <= options_.max_verify_rows && tokens >= std::int64_t{requests} * kMinFlashTokens) {
    LEVADA_ASSIGN_OR_RETURN(const std::int32_t verified, verify_graph(requests, each, pool));
    if (verified > 0 && graph_inputs_.fits(plan, verified)) {
      return Way{.graphs = &verify_graphs_[each], .rows = verified, .rows_each = each, .flash = decode_flash_.get()};
    }
  }
  return way;
}

Result<std::int32_t> CudaModel::verify_graph(std::int32_t requests, std::int32_t rows_each, const PagedKvPool& pool) {
  const auto buckets = DecodeGraphs::buckets();
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), requests);
  const std::int32_t rows = bucket == buckets.end() ? 0 : *bucket * rows_each;
  if (rows > options_.max_graph_rows) return 0;
  DecodeGraphs& graphs = verify_graphs_[rows_each];
  if (rows == 0 || graphs.has(rows)) return rows;
  // Recorded over padding, which changes no KV. The tokens of the step before, which this one may need, are kept aside.
  LEVADA_ASSIGN_OR_RETURN(const auto kept, device_.allocate(samples_->size_bytes()));
  LEVADA_RETURN_IF_ERROR(stream_->copy(kept->data(), samples_->data(), kept->size_bytes()));
  LEVADA_RETURN_IF_ERROR(graphs.record_at(
      rows, [&](std::int32_t count) { return send_padding(count, decode_flash_.get(), rows_each); },
      [&](std::int32_t count) { return decode_launches(count, pool, decode_flash_.get()); }, stream()));
  LEVADA_RETURN_IF_ERROR(stream_->copy(samples_->data(), kept->data(), kept->size_bytes()));
  LEVADA_RETURN_IF_ERROR(stream_->synchronize());  // `kept` goes
  LEVADA_LOG_INFO("recorded a graph for steps of ", *bucket, " requests with ", rows_each, " rows each");
  return rows;
}

Status CudaModel::send_sampling(const core::StepPlan& plan, std::int32_t padded_rows) {
  if (plan.samples.empty()) return {};
  std::vector<cuda::SamplerRow> rows(plan.samples.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].params = sample_params(plan, i, config_.vocabulary);
    if (plan.samples[i].append_input_to_history) rows[i].appended_row = plan.samples[i].row;
  }
  return sampler_->upload(rows, padded_rows, *stream_);
}

Result<std::unique_ptr<Forward>> CudaModel::begin(const core::StepPlan& plan, KvPool& pool,
                                                  const std::shared_ptr<const Draft>&) {
  auto* own = dynamic_cast<PagedKvPool*>(&pool);
  LEVADA_CHECK(own != nullptr && own->layout().identity() == layout_.identity(), "a pool made by this model");
  const StepLimits limits{config_.vocabulary, info_.context_length_tokens, own->pages(), layout_.page_size_tokens()};
  LEVADA_ASSIGN_OR_RETURN(const StepGeometry geometry, StepGeometry::make(plan, limits));
  const std::size_t sampled = std::exchange(sampled_, 0);  // a step that fails from here on leaves no tokens
  for (const core::FutureToken& future : plan.future_tokens) {
    if (future.previous_sample < 0 || static_cast<std::size_t>(future.previous_sample) >= sampled) {
      return internal_error("the step before, whose token this step continues, gave none");
    }
  }
  const auto rows = static_cast<std::int64_t>(plan.tokens.size());
  if (rows > kMaxStepRows || static_cast<std::int64_t>(plan.samples.size()) > kMaxSamples ||
      static_cast<std::int64_t>(plan.block_tables.size()) > kMaxTableEntries) {
    return invalid_argument("step plan: " + std::to_string(rows) + " rows with " + std::to_string(plan.samples.size()) +
                            " samples; a step on CUDA takes at most " + std::to_string(kMaxStepRows) + " rows and " +
                            std::to_string(kMaxSamples) + " samples");
  }
  LEVADA_ASSIGN_OR_RETURN(const Way way, way_of(plan, *own));
  const std::int32_t bucket = way.rows;
  StepInputs& inputs = bucket > 0 ? graph_inputs_ : eager_inputs_;
  LEVADA_ASSIGN_OR_RETURN(
      const StepArrays arrays,
      inputs.upload(plan, bucket > 0 ? bucket : static_cast<std::int32_t>(rows), layout_.page_size_tokens(), *stream_));
  LEVADA_RETURN_IF_ERROR(send_sampling(plan, bucket > 0 ? bucket : static_cast<std::int32_t>(plan.samples.size())));
  if (way.flash != nullptr) {
    kernels::PagedBatch batch = geometry.batch();
    if (scaling_ == KvScaling::kPage) batch.block_tables = std::span(expanded_table_).first(plan.block_tables.size());
    LEVADA_RETURN_IF_ERROR(way.flash->plan(batch, bucket, *stream_, way.rows_each));
  }
  return std::unique_ptr<Forward>(std::make_unique<CudaForward>(*this, plan, *own, way, arrays));
}

}  // namespace
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
