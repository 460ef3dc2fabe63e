#include "model/cuda/cuda_forward.h"

#include <algorithm>

#include "kernels/cuda/rows.h"

namespace levada::model {

using device::DeviceKind;
using device::TensorView;
namespace cuda = kernels::cuda;

Status CudaModel::run_step(const StepShape& shape, const PagedKvPool& pool, cuda::FlashAttention* flash) {
  const StepArrays arrays = graph_inputs_.arrays(shape.size());
  LEVADA_RETURN_IF_ERROR(graph_layers_->embed(arrays, shape.rows, samples(), stream()));
  for (int l = 0; l < config_.layers; ++l) {
    LEVADA_RETURN_IF_ERROR(run_layer(*graph_layers_, l, arrays, shape, pool, flash));
  }
  return choose_tokens(*graph_layers_, arrays, shape, shape.rows, pool);
}

Status CudaModel::run_layer(CudaLayers& layers, int layer, const StepArrays& arrays, const StepShape& shape,
                            const PagedKvPool& pool, cuda::FlashAttention* flash) {
  LEVADA_RETURN_IF_ERROR(layers.layer(layer, arrays, shape.rows, pool, flash, stream()));
  if (!shape.drafted) return {};
  LEVADA_RETURN_IF_ERROR(drafter_->after_layer(layer, layers.hidden(shape.rows), stream()));
  if (layer + 1 < config_.layers) return {};
  return drafter_->write_context(arrays, shape.rows, pool, stream());
}

Status CudaModel::choose_tokens(CudaLayers& layers, const StepArrays& arrays, const StepShape& shape,
                                std::int32_t count, const PagedKvPool& pool) {
  const TensorView chosen = TensorView::of(samples(), DType::kI32, {count}, DeviceKind::kCuda);
  LEVADA_RETURN_IF_ERROR(layers.logits(arrays, shape.rows, logits_of(count), stream()));
  LEVADA_RETURN_IF_ERROR(sampler_->run(logits_of(count), arrays.ids, chosen, stream()));
  if (shape.blocks == 0) return {};
  return drafter_->propose(arrays, shape.blocks, shape.block_rows, samples(), samples() + count, pool, stream());
}

CudaForward::CudaForward(CudaModel& model, const core::StepPlan& plan, PagedKvPool& pool, const CudaModel::Way& way,
                         const StepArrays& arrays)
    : model_(model),
      plan_(plan),
      pool_(pool),
      way_(way),
      rows_(static_cast<std::int32_t>(plan.tokens.size())),
      arrays_(arrays) {}

Status CudaForward::layer(int layer) {
  LEVADA_CHECK(layer == next_layer_ && layer < model_.config_.layers, "layers run in order, each once");
  StepShape shape = way_.shape;
  shape.rows = rows_;  // without the padding of a graph
  if (layer == 0) LEVADA_RETURN_IF_ERROR(layers().embed(arrays_, rows_, model_.samples(), model_.stream()));
  ++next_layer_;
  return model_.run_layer(layers(), layer, arrays_, shape, pool_, way_.flash);
}

Status CudaForward::all_layers() {
  if (way_.recorded) {
    next_layer_ = static_cast<int>(model_.config_.layers);
    return model_.graphs_.replay(way_.shape, model_.stream());
  }
  for (int l = 0; l < model_.config_.layers; ++l) LEVADA_RETURN_IF_ERROR(layer(l));
  return {};
}

Result<DeviceRows> CudaForward::device_rows(std::int32_t first, std::int32_t count, bool final_norm) {
  LEVADA_CHECK(first >= 0 && count > 0 && first + count <= rows_, "rows of this step");
  LEVADA_CHECK(!final_norm || next_layer_ == model_.config_.layers, "the final norm reads the last layer");
  LEVADA_ASSIGN_OR_RETURN(const TensorView rows, layers().states(first, count, final_norm, model_.stream()));
  return DeviceRows{rows, model_.stream_.get()};
}

Result<TensorView> CudaForward::host_rows(std::int32_t first, std::int32_t count, bool final_norm) {
  LEVADA_ASSIGN_OR_RETURN(const DeviceRows here, device_rows(first, count, final_norm));
  const std::int64_t width = model_.config_.hidden;
  LEVADA_ASSIGN_OR_RETURN(const std::unique_ptr<device::DeviceBuffer> wide,
                          model_.device_.allocate(static_cast<std::size_t>(count * width) * sizeof(float)));
  const TensorView out = TensorView::of(wide->data(), DType::kF32, {count, width}, DeviceKind::kCuda);
  LEVADA_RETURN_IF_ERROR(cuda::convert(here.rows, out, model_.stream()));
  return to_host(out);
}

Result<TensorView> CudaForward::logits(std::span<const std::int32_t> rows) {
  for (std::int32_t row : rows) LEVADA_CHECK(row >= 0 && row < rows_, "logits of a row of this step");
  LEVADA_CHECK(static_cast<std::int64_t>(rows.size()) <= std::min<std::int64_t>(rows_, CudaModel::kMaxSamples),
               "each once");
  LEVADA_RETURN_IF_ERROR(model_.stream_->copy(arrays_.sample_rows, rows.data(), rows.size_bytes()));
  const TensorView out = model_.logits_of(static_cast<std::int64_t>(rows.size()));
  LEVADA_RETURN_IF_ERROR(layers().logits(arrays_, rows_, out, model_.stream()));
  return to_host(out);
}

Result<std::unique_ptr<SampledTokens>> CudaForward::sample() {
  const auto count = static_cast<std::int32_t>(plan_.samples.size());
  if (!way_.recorded && count > 0) {
    LEVADA_RETURN_IF_ERROR(model_.choose_tokens(layers(), arrays_, way_.shape, count, pool_));
  }
  model_.sampled_ = plan_.samples.size();
  ResultTokens which{.sampled = plan_.samples.size()};
  which.proposed_first = static_cast<std::size_t>(way_.recorded ? way_.shape.rows : count);
  if (way_.shape.blocks > 0) which.proposed_each = static_cast<std::size_t>(way_.shape.block_rows - 1);
  for (const core::PlanSlice& slice : plan_.slices) {
    if (slice.propose > 0) which.wanted.push_back(slice.propose);
  }
  return model_.results_->send(model_.samples(), std::move(which), *model_.stream_);
}

Result<TensorView> CudaForward::to_host(const TensorView& from) {
  host_.resize(static_cast<std::size_t>(from.elements()));
  LEVADA_RETURN_IF_ERROR(model_.stream_->copy(host_.data(), from.data, host_.size() * sizeof(float)));
  LEVADA_RETURN_IF_ERROR(model_.stream_->synchronize());
  return TensorView::of(host_.data(), DType::kF32, {from.shape[0], from.shape[1]});
}

}  // namespace levada::model
