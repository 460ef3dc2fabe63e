#include "model/cuda/cuda_layers.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/expand.h"
#include "kernels/cuda/future_ids.h"
#include "kernels/cuda/rows.h"

namespace levada::model {

using device::DeviceKind;
using device::TensorView;
namespace cuda = kernels::cuda;

namespace {

TensorView ints(std::int32_t* data, std::int64_t count) {
  return TensorView::of(data, DType::kI32, {count}, DeviceKind::kCuda);
}

}  // namespace

Result<std::unique_ptr<CudaLayers>> CudaLayers::make(const ModelConfig& config, const CudaWeights& weights, DType dtype,
                                                     std::int64_t max_rows, cuda::Linears& linears,
                                                     cuda::PagedAttention& attention, device::Device& device,
                                                     int first_plane) {
  std::unique_ptr<CudaLayers> layers(new CudaLayers(config, weights, dtype, max_rows, linears, attention, first_plane));
  const auto allocate = [&](std::int64_t width) {
    return device.allocate(static_cast<std::size_t>(max_rows * width) * bytes_of(dtype));
  };
  const std::int64_t q_width = config.heads * config.head_dim;
  LEVADA_ASSIGN_OR_RETURN(layers->hidden_, allocate(config.hidden));
  LEVADA_ASSIGN_OR_RETURN(layers->qkv_, allocate(q_width + 2 * config.kv_heads * config.head_dim));
  LEVADA_ASSIGN_OR_RETURN(layers->attended_, allocate(q_width));
  LEVADA_ASSIGN_OR_RETURN(layers->activated_, allocate(config.intermediate));
  LEVADA_ASSIGN_OR_RETURN(layers->normed_, allocate(config.hidden));
  return layers;
}

std::int64_t CudaLayers::bytes() const {
  std::size_t sum = 0;
  for (const auto* buffer : {&hidden_, &qkv_, &attended_, &activated_, &normed_}) sum += (*buffer)->size_bytes();
  if (expanded_ != nullptr) sum += expanded_->size_bytes();
  return static_cast<std::int64_t>(sum);
}

TensorView CudaLayers::rows_of(const device::DeviceBuffer& buffer, std::int64_t rows, std::int64_t width) const {
  LEVADA_CHECK(rows <= max_rows_, "a step within the workspace");
  return TensorView::of(buffer.data(), dtype_, {rows, width}, DeviceKind::kCuda);
}

TensorView CudaLayers::hidden(std::int64_t rows) const { return rows_of(*hidden_, rows, config_.hidden); }

Status CudaLayers::embed(const StepArrays& arrays, std::int32_t rows, const std::int32_t* samples,
                         cudaStream_t stream) {
  if (samples != nullptr) {
    LEVADA_RETURN_IF_ERROR(cuda::fill_future_ids(arrays.ids, arrays.sources, samples, rows, stream));
  }
  return cuda::embed(weights_.embedding, ints(arrays.ids, rows), hidden(rows), stream);
}

Status CudaLayers::layer(int layer, const StepArrays& arrays, std::int32_t rows, const PagedKvPool& pool,
                         cuda::FlashAttention* flash, cudaStream_t stream) {
  const CudaLayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const cuda::LinearCall into_qkv = qkv_call(w, rows), from_attention = o_call(w, rows);
  const TensorView &qkv = into_qkv.out, &attended = from_attention.x;

  LEVADA_RETURN_IF_ERROR(linears_.run(into_qkv, stream));
  LEVADA_RETURN_IF_ERROR(cuda::rope_append({.qkv = qkv,
                                            .heads = static_cast<int>(config_.heads),
                                            .kv_heads = static_cast<int>(config_.kv_heads),
                                            .head_dim = static_cast<int>(config_.head_dim),
                                            .q_norm = w.q_norm,
                                            .k_norm = w.k_norm,
                                            .eps = config_.norm_eps,
                                            .cos_sin = weights_.cos_sin,
                                            .positions = ints(arrays.positions, rows),
                                            .slots = ints(arrays.slots, rows),
                                            .k_plane = plane(0, layer, pool),
                                            .v_plane = plane(1, layer, pool),
                                            .scales = kv_scales(layer, pool)},
                                           stream));
  TensorView q = TensorView::of(qkv.data, dtype_, {rows, config_.heads, config_.head_dim}, DeviceKind::kCuda);
  q.strides[0] = qkv.strides[0];
  LEVADA_RETURN_IF_ERROR(attend(q, layer, arrays, pool, flash, attended, stream));
  LEVADA_RETURN_IF_ERROR(linears_.run(from_attention, stream));
  LEVADA_RETURN_IF_ERROR(linears_.run(gate_up_call(w, rows), stream));
  return linears_.run(down_call(w, rows), stream);
}

TensorView heads_of(const TensorView& plane, std::int64_t kv_heads, std::int64_t head_dim) {
  TensorView heads =
      TensorView::of(plane.data, plane.dtype, {plane.shape[0], plane.shape[1], kv_heads, head_dim}, DeviceKind::kCuda);
  heads.strides[0] = plane.strides[0];
  heads.strides[1] = plane.strides[1];
  return heads;
}

Status CudaLayers::make_expanded_pages(std::int32_t pages, std::int32_t page_size, device::Device& device) {
  const std::int64_t numbers = std::int64_t{pages} * page_size * config_.kv_heads * config_.head_dim;
  LEVADA_ASSIGN_OR_RETURN(expanded_, device.allocate(static_cast<std::size_t>(2 * numbers) * bytes_of(dtype_)));
  expanded_pages_ = pages;
  return {};
}

TensorView CudaLayers::plane(int which, int layer, const PagedKvPool& pool) const {
  return heads_of(pool.plane(first_plane_ + which, layer), config_.kv_heads, config_.head_dim);
}

Status CudaLayers::attend(const TensorView& q, int layer, const StepArrays& arrays, const PagedKvPool& pool,
                          cuda::FlashAttention* flash, const TensorView& attended, cudaStream_t stream) {
  TensorView k = plane(0, layer, pool), v = plane(1, layer, pool);
  cuda::KvScales scales = kv_scales(layer, pool);
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  if (flash == nullptr) {
    const cuda::AttentionRows where{arrays.lengths, arrays.table_first, arrays.block_tables, arrays.starts};
    return attention_.run(q, where, k, v, scale, attended, stream, scales);
  }
  if (scales.by_page()) {
    LEVADA_CHECK(arrays.table_entries <= expanded_pages_, "room for the pages of the step");
    TensorView k_wide = k;
    k_wide.dtype = dtype_;
    k_wide.shape[0] = expanded_pages_;
    k_wide.data = expanded_->data();
    TensorView v_wide = k_wide;
    v_wide.data = static_cast<std::byte*>(expanded_->data()) + expanded_->size_bytes() / 2;
    LEVADA_RETURN_IF_ERROR(cuda::expand_pages(
        {k, v, scales.page, ints(arrays.block_tables, arrays.table_entries), k_wide, v_wide}, stream));
    k = k_wide;
    v = v_wide;
    scales = {};
  }
  return flash->run(q, k, v, scale, attended, stream, scales);
}

cuda::KvScales CudaLayers::kv_scales(int layer, const PagedKvPool& pool) const {
  const std::vector<core::KvPlane>& planes = pool.layout().planes();
  const std::string& scaled_by = planes[static_cast<std::size_t>(first_plane_)].scaled_by;
  if (scaled_by.empty()) return {};
  if (scaled_by != "layer") return {.k = 1, .v = 1, .page = pool.plane(2, layer)};
  const LayerKvScales& own = weights_.layers[static_cast<std::size_t>(layer)].kv_scales;
  return {.k = own.k, .v = own.v, .page = {}};
}

cuda::LinearCall CudaLayers::qkv_call(const CudaLayerWeights& w, std::int64_t rows) const {
  return {.x = hidden(rows),
          .w = w.qkv.numbers,
          .w_scale = w.qkv.scale,
          .norm = w.input_norm,
          .eps = config_.norm_eps,
          .out = rows_of(*qkv_, rows, w.qkv.numbers.shape[0])};
}

cuda::LinearCall CudaLayers::o_call(const CudaLayerWeights& w, std::int64_t rows) const {
  return {.x = rows_of(*attended_, rows, config_.heads * config_.head_dim),
          .w = w.o.numbers,
          .w_scale = w.o.scale,
          .norm = {},
          .end = cuda::LinearEnd::kAdd,
          .out = hidden(rows)};
}

cuda::LinearCall CudaLayers::gate_up_call(const CudaLayerWeights& w, std::int64_t rows) const {
  return {.x = hidden(rows),
          .w = w.gate_up.numbers,
          .w_scale = w.gate_up.scale,
          .norm = w.post_norm,
          .eps = config_.norm_eps,
          .end = cuda::LinearEnd::kSiluMul,
          .out = rows_of(*activated_, rows, config_.intermediate)};
}

cuda::LinearCall CudaLayers::down_call(const CudaLayerWeights& w, std::int64_t rows) const {
  return {.x = rows_of(*activated_, rows, config_.intermediate),
          .w = w.down.numbers,
          .w_scale = w.down.scale,
          .norm = {},
          .end = cuda::LinearEnd::kAdd,
          .out = hidden(rows)};
}

cuda::LinearCall CudaLayers::head_call(const TensorView& out) const {
  return {.x = rows_of(*normed_, out.shape[0], config_.hidden),
          .w = weights_.head,
          .w_scale = {},
          .norm = weights_.final_norm,
          .eps = config_.norm_eps,
          .out = out};
}

Status CudaLayers::tune(std::int64_t rows, const TensorView& logits, cudaStream_t stream) {
  constexpr std::size_t kLayers = 8;  // in turn, so that weights come from memory as in a step
  using Call = cuda::LinearCall (CudaLayers::*)(const CudaLayerWeights&, std::int64_t) const;
  for (const Call call :
       {&CudaLayers::qkv_call, &CudaLayers::o_call, &CudaLayers::gate_up_call, &CudaLayers::down_call}) {
    std::vector<cuda::LinearCall> calls;
    for (std::size_t l = 0; l < std::min(kLayers, weights_.layers.size()); ++l) {
      calls.push_back((this->*call)(weights_.layers[l], rows));
    }
    LEVADA_RETURN_IF_ERROR(linears_.tune(calls, stream).status());
  }
  if (rows > logits.shape[0]) return {};
  TensorView out = logits;
  out.shape[0] = rows;
  const cuda::LinearCall head = head_call(out);
  return linears_.tune({&head, 1}, stream).status();
}

Status CudaLayers::logits(const StepArrays& arrays, std::int32_t rows, const TensorView& out, cudaStream_t stream) {
  const std::int64_t count = out.shape[0];
  if (count == 0) return {};
  const cuda::LinearCall head = head_call(out);
  LEVADA_RETURN_IF_ERROR(cuda::gather_rows(hidden(rows), ints(arrays.sample_rows, count), head.x, stream));
  return linears_.run(head, stream);
}

Result<TensorView> CudaLayers::states(std::int32_t first, std::int32_t count, bool final_norm, cudaStream_t stream) {
  TensorView rows = hidden(first + count);
  rows.data = rows.as<std::byte>() + static_cast<std::size_t>(first * config_.hidden) * bytes_of(dtype_);
  rows.shape[0] = count;
  if (!final_norm) return rows;
  const TensorView normed = rows_of(*normed_, count, config_.hidden);
  LEVADA_RETURN_IF_ERROR(cuda::rms_norm(rows, weights_.final_norm, config_.norm_eps, normed, stream));
  return normed;
}

}  // namespace levada::model
