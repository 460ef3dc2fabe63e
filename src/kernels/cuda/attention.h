// What: paged attention on CUDA, one query row at a time: decode, and every shape that has no faster kernel.
// Owner: PagedAttention owns its partial results and counters; q, planes and index arrays are the caller's.
// Thread: one stream at a time: the partial results are shared by successive launches.
// Invariant: softmax in float32; a row's result depends on its own tokens and the split count alone, never on its
// neighbours. A row that attends nothing (padding) gives zeros. Nothing is allocated by a launch, so it can be captured in a graph.
// Formula: out[r, h] = sum_t softmax_t(scale q[r, h] . k[t, h / group]) v[t, h / group] over starts[r] <= t < lengths[r].
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/device.h"
#include "kernels/cuda/kv_scales.h"

namespace levada::kernels::cuda {

using device::TensorView;

// Read while earlier kernels of the stream may run: none of those may write it (but see draft_block.h).
// Where the rows' tokens lie: token t of row r is at slot t % page_size of page block_tables[table_first[r] + t / page_size].
struct AttentionRows {
  const std::int32_t* lengths = nullptr;       // device [R]: the first token that is not attended any more
  const std::int32_t* table_first = nullptr;   // device [R]
  const std::int32_t* block_tables = nullptr;  // device
  const std::int32_t* starts = nullptr;        // device [R]: the first attended token, at least 0; null: 0 in every row
};

class PagedAttention {
 public:
  // kResourceExhausted without memory for the partial results of `max_split_rows` rows.
  static Result<std::unique_ptr<PagedAttention>> create(device::Device& device, int heads, int kv_heads, int head_dim,
                                                        int max_split_rows);

  // q: T [R, heads, head_dim], rows may be strided; planes [pages, page_size, kv_heads, head_dim] of T or f8_e4m3, tokens
  // may be strided; out [R, heads * head_dim]. T: bfloat16, float16 or float32; head_dim at most 256, heads a multiple of kv_heads.
  Status run(const TensorView& q, const AttentionRows& rows, const TensorView& k_plane, const TensorView& v_plane,
             float scale, const TensorView& out, cudaStream_t stream, const KvScales& scales = {});

  std::size_t bytes() const { return partial_->size_bytes() + counters_->size_bytes(); }

 private:
  PagedAttention(int heads, int kv_heads, int head_dim, int max_split_rows)
      : heads_(heads), kv_heads_(kv_heads), head_dim_(head_dim), max_split_rows_(max_split_rows) {}

  int heads_, kv_heads_, head_dim_, max_split_rows_;
  std::unique_ptr<device::DeviceBuffer> partial_;   // f32 [row, kv head, split, group, head_dim + 2]
  std::unique_ptr<device::DeviceBuffer> counters_;  // [row, kv head]: splits that have arrived; 0 between launches
};

}  // namespace levada::kernels::cuda
