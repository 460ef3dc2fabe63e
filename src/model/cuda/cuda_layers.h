// What: CudaLayers, the launches of one step over CUDA: embedding, the layers, the head. What runs eagerly and what is
// recorded into a graph is the same code.
// Owner: the CUDA model; borrows weights, pool and input arrays, owns the activations of up to max_rows rows.
// Thread: the worker's; one stream.
// Invariant: h += o(attention(norm1(h))); h += down(silu(gate(norm2(h))) * up(norm2(h))) (docs/models.md). Buffers never
// move once made, so that graphs keep pointing at them.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/flash_attention.h"
#include "kernels/cuda/linear.h"
#include "model/cuda/cuda_weights.h"
#include "model/cuda/step_inputs.h"
#include "model/paged_kv_pool.h"

namespace levada::model {

// A pool's plane as [pages, page_size, kv_heads, head_dim]; tokens may be wider than that.
device::TensorView heads_of(const device::TensorView& plane, std::int64_t kv_heads, std::int64_t head_dim);

class CudaLayers {
 public:
  // Of `linears` and `attention` one of each serves all CudaLayers of a model. `first_plane`: of the layout's planes, the
  // one with their keys; the next one has their values. A draft's numbers, which aren't the first, have no scales.
  static Result<std::unique_ptr<CudaLayers>> make(const ModelConfig& config, const CudaWeights& weights, DType dtype,
                                                  std::int64_t max_rows, kernels::cuda::Linears& linears,
                                                  kernels::cuda::PagedAttention& attention, device::Device& device,
                                                  int first_plane = 0);

  std::int64_t max_rows() const { return max_rows_; }
  std::int64_t bytes() const;
  // T [rows, hidden] after the last launched layer.
  device::TensorView hidden(std::int64_t rows) const;

  // hidden = embedding of arrays.ids, after those that the step before sampled have been filled in; null: all are there.
  Status embed(const StepArrays& arrays, std::int32_t rows, const std::int32_t* samples, cudaStream_t stream);
  // Room for the pages of a step's block tables as dtype, for FlashInfer over pages that have scales of their own. Without
  // it, or for steps that name more pages, `flash` must be null then.
  Status make_expanded_pages(std::int32_t pages, std::int32_t page_size, device::Device& device);
  std::int32_t expanded_pages() const { return expanded_pages_; }
  // `flash`: planned for this step, or null: row by row. Where expanded pages are attended, its pages are the places in
  // the step's block tables.
  Status layer(int layer, const StepArrays& arrays, std::int32_t rows, const PagedKvPool& pool,
               kernels::cuda::FlashAttention* flash, cudaStream_t stream);
  // out f32 [n, vocabulary] = head(norm(hidden of arrays.sample_rows[i])).
  Status logits(const StepArrays& arrays, std::int32_t rows, const device::TensorView& out, cudaStream_t stream);
  // T [count, hidden]: rows [first, first + count) of hidden(), or of the final norm's, which the next launch overwrites.
  Result<device::TensorView> states(std::int32_t first, std::int32_t count, bool final_norm, cudaStream_t stream);

  // Measures the algorithms of every product over so many rows, the head's if `logits` has them. Overwrites activations
  // and logits. REQUIRES: rows <= max_rows.
  Status tune(std::int64_t rows, const device::TensorView& logits, cudaStream_t stream);

 private:
  CudaLayers(const ModelConfig& config, const CudaWeights& weights, DType dtype, std::int64_t max_rows,
             kernels::cuda::Linears& linears, kernels::cuda::PagedAttention& attention, int first_plane)
      : config_(config),
        weights_(weights),
        dtype_(dtype),
        max_rows_(max_rows),
        linears_(linears),
        attention_(attention),
        first_plane_(first_plane) {}
  device::TensorView rows_of(const device::DeviceBuffer& buffer, std::int64_t rows, std::int64_t width) const;
  // What the pool's layout says the numbers of a layer's planes are multiplied by.
  kernels::cuda::KvScales kv_scales(int layer, const PagedKvPool& pool) const;
  Status attend(const device::TensorView& q, int layer, const StepArrays& arrays, const PagedKvPool& pool,
                kernels::cuda::FlashAttention* flash, const device::TensorView& attended, cudaStream_t stream);
  // 0: keys, 1: values.
  device::TensorView plane(int which, int layer, const PagedKvPool& pool) const;
  // The products, over the first rows of the activations.
  kernels::cuda::LinearCall qkv_call(const CudaLayerWeights& w, std::int64_t rows) const;
  kernels::cuda::LinearCall o_call(const CudaLayerWeights& w, std::int64_t rows) const;
  kernels::cuda::LinearCall gate_up_call(const CudaLayerWeights& w, std::int64_t rows) const;
  kernels::cuda::LinearCall down_call(const CudaLayerWeights& w, std::int64_t rows) const;
  kernels::cuda::LinearCall head_call(const device::TensorView& out) const;

  const ModelConfig& config_;
  const CudaWeights& weights_;
  const DType dtype_;
  const std::int64_t max_rows_;
  kernels::cuda::Linears& linears_;
  kernels::cuda::PagedAttention& attention_;
  const int first_plane_;
  std::unique_ptr<device::DeviceBuffer> hidden_, qkv_, attended_, activated_, normed_;
  std::int32_t expanded_pages_ = 0;
  std::unique_ptr<device::DeviceBuffer> expanded_;  // keys, then values; null without
};

}  // namespace levada::model
