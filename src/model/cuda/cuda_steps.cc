// How a plan becomes a step: the graph that fits it or none, its integers on the device, and graphs recorded on demand.
#include <algorithm>

#include "base/lap.h"
#include "base/log.h"
#include "model/cuda/cuda_forward.h"
#include "model/cuda/cuda_model.h"
#include "model/host_sampling.h"
#include "model/step_geometry.h"

namespace levada::model {

namespace cuda = kernels::cuda;

namespace {

// Decode rows that are fewer, or whose contexts are shorter on average, are faster one by one.
constexpr std::int32_t kMinFlashRows = 16, kMinFlashTokens = 512;

// The number of rows that every slice has; 0 if they differ.
std::int32_t rows_of_each(const core::StepPlan& plan) {
  const std::int32_t each = plan.slices.empty() ? 0 : plan.slices.front().range.count;
  const bool alike = std::all_of(plan.slices.begin(), plan.slices.end(),
                                 [&](const core::PlanSlice& slice) { return slice.range.count == each; });
  return alike ? each : 0;
}

// As the plan has them, without padding.
StepShape shape_of(const core::StepPlan& plan) {
  StepShape shape{.rows = static_cast<std::int32_t>(plan.tokens.size()), .drafted = plan.draft != core::kNoDraft};
  for (const core::PlanSlice& slice : plan.slices) {
    if (slice.propose == 0) continue;
    ++shape.blocks;
    shape.block_rows = std::max(shape.block_rows, 1 + slice.propose);
  }
  return shape;
}

}  // namespace

StepShape CudaModel::graph_shape(const core::StepPlan& plan, const KvPool& pool) const {
  if (&pool != graph_pool_ || !plan.captures.empty() || plan.samples.size() != plan.tokens.size()) return {};
  for (std::size_t i = 0; i < plan.samples.size(); ++i) {
    if (plan.samples[i].row != static_cast<std::int32_t>(i)) return {};
  }
  StepShape shape = shape_of(plan);
  if (shape.blocks > 0) {
    shape.blocks = DecodeGraphs::bucket_for(shape.blocks);
    if (shape.blocks == 0 || shape.blocks * shape.block_rows > CudaDrafter::kMaxBlockRows) return {};
  }
  const auto requests = static_cast<std::int32_t>(plan.slices.size());
  const std::int32_t each = rows_of_each(plan);
  std::int64_t tokens = 0;
  for (const core::PlanSlice& slice : plan.slices) tokens += slice.range.first + slice.range.count;
  const bool long_contexts = decode_flash_ != nullptr && tokens >= std::int64_t{requests} * kMinFlashTokens;
  StepShape flash = shape;
  flash.rows = DecodeGraphs::bucket_for(requests) * each;
  flash.rows_each = each;
  flash.flash = true;
  const bool verifies = each > 1 && each <= options_.max_verify_rows;
  if (long_contexts && (verifies || (each == 1 && flash.rows >= kMinFlashRows)) && flash.rows > 0 &&
      flash.rows <= options_.max_graph_rows && graph_inputs_.fits(plan, flash.size())) {
    return flash;
  }
  shape.rows = DecodeGraphs::bucket_for(shape.rows);
  const bool fits = shape.rows > 0 && shape.rows <= options_.max_graph_rows && graph_inputs_.fits(plan, shape.size());
  return fits ? shape : StepShape{};
}

Result<CudaModel::Way> CudaModel::way_of(const core::StepPlan& plan, const PagedKvPool& pool) {
  const StepShape recorded = graph_shape(plan, pool);
  if (recorded.rows > 0) {
    if (!graphs_.has(recorded)) LEVADA_RETURN_IF_ERROR(record_late(recorded, pool));
    return Way{recorded, true, recorded.flash ? decode_flash_.get() : nullptr};
  }
  const bool chunks = plan.tokens.size() > plan.slices.size();
  const bool expands = scaling_ != KvScaling::kPage || plan.block_tables.size() <= expanded_table_.size();
  return Way{shape_of(plan), false, chunks && expands ? flash_.get() : nullptr};
}

Status CudaModel::send_padding(const StepShape& shape, cuda::FlashAttention* flash) {
  const core::StepPlan nothing;
  LEVADA_RETURN_IF_ERROR(graph_inputs_.upload(nothing, shape.size(), layout_.page_size_tokens(), *stream_).status());
  LEVADA_RETURN_IF_ERROR(sampler_->upload({}, shape.rows, *stream_));
  if (flash == nullptr) return {};
  kernels::PagedBatch padding;
  padding.page_size = layout_.page_size_tokens();
  return flash->plan(padding, shape.rows, *stream_, shape.rows_each);
}

Status CudaModel::record_graphs(PagedKvPool& pool) {
  const auto record = [&](std::int32_t min_rows, cuda::FlashAttention* flash) -> Status {
    for (const std::int32_t rows : DecodeGraphs::buckets()) {
      if (rows < min_rows || rows > options_.max_graph_rows) continue;
      LEVADA_RETURN_IF_ERROR(graphs_.record(
          {.rows = rows, .flash = flash != nullptr}, [&](const StepShape& shape) { return send_padding(shape, flash); },
          [&](const StepShape& shape) { return run_step(shape, pool, flash); }, stream()));
    }
    return {};
  };
  LEVADA_RETURN_IF_ERROR(record(1, nullptr));
  if (decode_flash_ == nullptr) return {};
  return record(kMinFlashRows, decode_flash_.get());
}

Status CudaModel::record_late(const StepShape& shape, const PagedKvPool& pool) {
  Lap lap;
  cuda::FlashAttention* const flash = shape.flash ? decode_flash_.get() : nullptr;
  std::unique_lock<std::mutex> nobody_allocates;
  if (drafter_ != nullptr) nobody_allocates = std::unique_lock(drafter_->recording());
  LEVADA_ASSIGN_OR_RETURN(const auto kept, device_.allocate(samples_->size_bytes()));
  LEVADA_RETURN_IF_ERROR(stream_->copy(kept->data(), samples_->data(), kept->size_bytes()));
  LEVADA_RETURN_IF_ERROR(graphs_.record(
      shape, [&](const StepShape& padded) { return send_padding(padded, flash); },
      [&](const StepShape& padded) { return run_step(padded, pool, flash); }, stream()));
  LEVADA_RETURN_IF_ERROR(stream_->copy(samples_->data(), kept->data(), kept->size_bytes()));
  LEVADA_RETURN_IF_ERROR(stream_->synchronize());  // `kept` goes
  LEVADA_LOG_INFO("recorded a graph for steps of ", shape.rows, " rows", shape.flash ? " (FlashInfer)" : "",
                  shape.drafted ? ", a draft's context" : "", shape.blocks > 0 ? " and blocks: " : "",
                  shape.blocks > 0 ? std::to_string(shape.blocks) + " x " + std::to_string(shape.block_rows) : "",
                  ", in ", lap());
  return {};
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

Status CudaModel::check_limits(const core::StepPlan& plan) const {
  if (plan.tokens.size() > kMaxStepRows || plan.samples.size() > kMaxSamples) {
    return invalid_argument("step plan: " + std::to_string(plan.tokens.size()) + " rows with " +
                            std::to_string(plan.samples.size()) + " samples; a step on CUDA takes at most " +
                            std::to_string(kMaxStepRows) + " rows and " + std::to_string(kMaxSamples) + " samples");
  }
  if (eager_inputs_.fits(plan, shape_of(plan).size())) return {};
  return invalid_argument("step plan: more block table entries or blocks than a step on CUDA takes");
}

Result<std::unique_ptr<Forward>> CudaModel::begin(const core::StepPlan& plan, KvPool& pool,
                                                  const std::shared_ptr<const Draft>& draft) {
  auto* own = dynamic_cast<PagedKvPool*>(&pool);
  LEVADA_CHECK(own != nullptr && own->layout().identity() == layout_.identity(), "a pool made by this model");
  const StepLimits limits{config_.vocabulary, info_.context_length_tokens, own->pages(), layout_.page_size_tokens(),
                          draft == nullptr ? 0 : draft->config().block_size};
  LEVADA_ASSIGN_OR_RETURN(const StepGeometry geometry, StepGeometry::make(plan, limits));
  const std::size_t sampled = std::exchange(sampled_, 0);  // a step that fails from here on leaves no tokens
  for (const core::FutureToken& future : plan.future_tokens) {
    if (future.previous_sample < 0 || static_cast<std::size_t>(future.previous_sample) >= sampled) {
      return internal_error("the step before, whose token this step continues, gave none");
    }
  }
  LEVADA_RETURN_IF_ERROR(check_limits(plan));
  if (plan.draft != core::kNoDraft) {
    LEVADA_CHECK(drafter_ != nullptr, "a draft loaded by this model");
    LEVADA_ASSIGN_OR_RETURN(const bool other_geometry, drafter_->use(draft, *stream_));
    if (other_geometry) graphs_.forget([](const StepShape& shape) { return shape.drafted; });
  }
  LEVADA_ASSIGN_OR_RETURN(const Way way, way_of(plan, *own));
  StepInputs& inputs = way.recorded ? graph_inputs_ : eager_inputs_;
  LEVADA_ASSIGN_OR_RETURN(const StepArrays arrays,
                          inputs.upload(plan, way.shape.size(), layout_.page_size_tokens(), *stream_));
  LEVADA_RETURN_IF_ERROR(
      send_sampling(plan, way.recorded ? way.shape.rows : static_cast<std::int32_t>(plan.samples.size())));
  if (way.flash != nullptr) {
    kernels::PagedBatch batch = geometry.batch();
    if (scaling_ == KvScaling::kPage) batch.block_tables = std::span(expanded_table_).first(plan.block_tables.size());
    LEVADA_RETURN_IF_ERROR(way.flash->plan(batch, way.recorded ? way.shape.rows : 0, *stream_, way.shape.rows_each));
  }
  return std::unique_ptr<Forward>(std::make_unique<CudaForward>(*this, plan, *own, way, arrays));
}

}  // namespace levada::model
