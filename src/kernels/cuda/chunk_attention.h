// What: paged attention on CUDA for steps that compute whole chunks of prompts, through FlashInfer's tensor-core kernels.
// Owner: ChunkAttention owns its workspaces; q, planes and out are the caller's.
// Thread: one; one stream at a time.
// Invariant: plan() describes a step once, run() computes it in each layer. Causal: row i of a slice attends
// context + i + 1 tokens. A pinned block is written anew only after its copy has ended.
// FlashInfer 0.7.4, attention/prefill.cuh (Apache-2.0), from the wheel that scripts/setup.sh unpacks.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>

#include "base/status.h"
#include "device/device.h"
#include "kernels/ops.h"

namespace levada::kernels::cuda {

class ChunkAttention {
 public:
  // Whether there is such a kernel: bfloat16, head_dim 64 or 128.
  static bool supports(DType dtype, int head_dim);

  // kResourceExhausted without memory for the workspaces. REQUIRES: supports(kBF16, head_dim).
  static Result<std::unique_ptr<ChunkAttention>> create(device::Device& device, int heads, int kv_heads, int head_dim,
                                                        int page_size);
  ~ChunkAttention();

  // Chooses tiles and splits on the host and enqueues their copy. kInvalidArgument if the step is too large for the
  // workspaces.
  Status plan(const PagedBatch& batch, device::Stream& stream);
  // q: bf16 [R, heads, head_dim], rows may be strided; planes bf16 [pages, page_size, kv_heads, head_dim]; out bf16 [R,
  // heads * head_dim]. R: the rows of the last plan().
  Status run(const TensorView& q, const TensorView& k_plane, const TensorView& v_plane, float scale,
             const TensorView& out, cudaStream_t stream);

  std::size_t bytes() const;

 private:
  struct Impl;
  explicit ChunkAttention(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::kernels::cuda
