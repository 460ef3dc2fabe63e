// What: launchers of the kernels that work row by row: embedding, norms, RoPE with the paged append, SiLU, row copies.
// Owner: all memory is the caller's, on the stream's device; arrays named "device" are read when the kernel runs.
// Thread: any, one at a time per stream. Asynchronous, capturable in a CUDA graph; nothing is allocated.
// Invariant: shapes and types are checked before the launch and refused with a Status. T is the type of the activations:
// bf16, f16 or f32; sums are taken in f32. Launched for programmatic overlap: each kernel waits for its predecessors
// before it touches memory that changes. Twins: kernels/ref/ref_ops.h, kernels/ref/ref_rows.h.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/tensor_view.h"
#include "kernels/cuda/kv_scales.h"

namespace levada::kernels::cuda {

using device::TensorView;

// out[r] = table[ids[r]]. table: T [V, H]; ids: device i32 [R], an id outside the table gives zeros; out: T [R, H].
Status embed(const TensorView& table, const TensorView& ids, const TensorView& out, cudaStream_t stream);

// out[r] = weight * x[r] / sqrt(mean(x[r]^2) + eps). x, out: T [R, H], rows may be strided, out may be x; weight: f32 [H].
Status rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& out, cudaStream_t stream);

// x += delta, then out = rms_norm(x) of the sum as stored. x, delta, out: T [R, H].
Status add_rms_norm(const TensorView& x, const TensorView& delta, const TensorView& weight, float eps,
                    const TensorView& out, cudaStream_t stream);

// The rows that a fused q, k, v projection gave, and where they go.
struct RopeAppend {
  TensorView qkv;  // T [R, layers * (heads + 2 kv_heads) * head_dim]; q and k are normed and rotated in place
  int heads = 0, kv_heads = 0, head_dim = 0;  // head_dim even, at most 256
  TensorView q_norm, k_norm;                  // f32 [layers * head_dim] (qwen3's norm per head), or both without data
  float eps = 0;
  TensorView cos_sin;    // f32 [max_positions, head_dim]: head_dim/2 cosines, then head_dim/2 sines
  TensorView positions;  // device i32 [R], each below max_positions
  TensorView slots;      // device i32 [R]: page * page_size + place in the page; negative: not stored (padding row)
  TensorView k_plane, v_plane;  // [pages, page_size, kv_heads, head_dim], T or f8_e4m3; tokens may be strided
  KvScales scales;              // an f8 plane holds value / scale, saturated
  int layers = 1;               // several, without q heads: the planes given are the first's, the others follow them
};
// One kernel: norm of each q and k head, half-split rotation at its position, k and v into their slots; before it, with
// scales by page, one that writes the scales of the pages whose first token is among the rows. Reads positions,
// slots and cos_sin while earlier kernels of the stream may run: none of those may write them.
Status rope_append(const RopeAppend& call, cudaStream_t stream);

// out[r, i] = silu(gate_up[r, i]) * gate_up[r, I + i]. T [R, 2I] -> T [R, I].
Status silu_mul(const TensorView& gate_up, const TensorView& out, cudaStream_t stream);

// out[r] = x[rows[r]]. x: T [X, H]; rows: device i32 [R], a row outside x gives zeros; out: [R, H], T or f32 (converted).
Status gather_rows(const TensorView& x, const TensorView& rows, const TensorView& out, cudaStream_t stream);

// out = x in out's type. Any two of bf16, f16, f32; [R, H], rows may be strided.
Status convert(const TensorView& x, const TensorView& out, cudaStream_t stream);

}  // namespace levada::kernels::cuda
