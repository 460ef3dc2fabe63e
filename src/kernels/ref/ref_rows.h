// What: the plain twins of the CUDA launchers that join several steps (kernels/cuda/rows.h, linear.h), in float32.
// Owner: the caller's memory, on the CPU.
// Thread: one.
// Invariant: the steps are RefOps', one after the other; nothing is rounded between them. Conventions (slots, gate rows
// before up rows) are those of the launchers' headers.
#pragma once

#include <span>

#include "kernels/ref/ref_ops.h"

namespace levada::kernels {

// Planes: f32 [pages, page_size, kv_heads, head_dim]. Norms: f32 [head_dim], or without data.
struct RefRopeAppend {
  TensorView qkv;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  TensorView q_norm, k_norm;
  float eps = 0;
  TensorView cos_sin;
  std::span<const std::int32_t> positions, slots;
  TensorView k_plane, v_plane;
  TensorView page_scales;  // f32 [pages, kPageScales], or without data; the planes keep what the rows have either way
};
void ref_rope_append(RefOps& ops, const RefRopeAppend& call);

enum class RefLinearEnd { kStore, kAdd, kSiluMul };
// out = end(norm(x) w^T); norm f32 [K] or without data.
void ref_linear(RefOps& ops, const TensorView& x, const TensorView& w, const TensorView& norm, float eps,
                RefLinearEnd end, const TensorView& out);

// What stored numbers mean, in place: those of each page of a plane f32 [pages, ...] times its scale, 0 for keys, 1 for values.
void ref_apply_page_scales(const TensorView& plane, const TensorView& page_scales, int which);

// Each 128 columns of x: f32 [R, K], contiguous, replaced by what f8_e4m3 numbers with one scale (largest / 448) keep.
void ref_quantize_rows(const TensorView& x);

}  // namespace levada::kernels
