// What: expand_pages, the numbers of float8 pages times their scales, as the activations' type, page after page.
// Owner: all memory is the caller's, on the stream's device.
// Thread: any, one at a time per stream. Asynchronous, capturable in a CUDA graph; nothing is allocated.
// Invariant: shapes are checked before the launch; a page outside the planes is skipped. Twin: ref_apply_page_scales()
// (kernels/ref/ref_rows.h), page by page.
// For kernels that take no scales of each page.
#pragma once

#include "kernels/cuda/kv_scales.h"

namespace levada::kernels::cuda {

struct ExpandPages {
  TensorView k_plane, v_plane;  // f8_e4m3 [pages, page_size, kv_heads, head_dim]
  TensorView scales;            // f32 [pages, kPageScales]
  TensorView pages;             // device i32 [n], read when the kernel runs
  TensorView k_out, v_out;      // T [at least n, page_size, kv_heads, head_dim]: bfloat16 or float16
};
// REQUIRES (checked): a page's numbers are a multiple of 8.
Status expand_pages(const ExpandPages& call, cudaStream_t stream);

}  // namespace levada::kernels::cuda
