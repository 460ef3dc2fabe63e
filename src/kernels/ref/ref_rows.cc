#include "kernels/ref/ref_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace levada::kernels {
namespace {

// Heads [first, first + count) of every row of qkv.
TensorView heads_of(const RefRopeAppend& call, std::int64_t first, std::int64_t count) {
  TensorView view = TensorView::of(call.qkv.as<float>() + first * call.head_dim, DType::kF32,
                                   {call.qkv.shape[0], count, call.head_dim});
  view.strides[0] = call.qkv.strides[0];
  return view;
}

void append(const TensorView& heads, std::span<const std::int32_t> slots, const TensorView& plane) {
  const std::int64_t width = heads.shape[1] * heads.shape[2];
  for (std::int64_t r = 0; r < heads.shape[0]; ++r) {
    const std::int64_t slot = slots[static_cast<std::size_t>(r)];
    if (slot < 0) continue;
    std::copy_n(heads.as<const float>() + r * heads.strides[0], width, plane.as<float>() + slot * width);
  }
}

// The nearest number that f8_e4m3 holds: 3 bits after the leading one, exponents from -6, at most 448.
float round_to_e4m3(float x) {
  if (x == 0) return 0;
  const int exponent = std::max(-6, std::ilogb(x));
  const float step = std::ldexp(1.0f, exponent - 3);
  return std::clamp(std::nearbyint(x / step) * step, -448.0f, 448.0f);
}

}  // namespace

void ref_rope_append(RefOps& ops, const RefRopeAppend& call) {
  const TensorView q = heads_of(call, 0, call.heads), k = heads_of(call, call.heads, call.kv_heads),
                   v = heads_of(call, call.heads + call.kv_heads, call.kv_heads);
  if (call.q_norm.data != nullptr) {
    ops.rms_norm_heads(q, call.q_norm, call.eps);
    ops.rms_norm_heads(k, call.k_norm, call.eps);
  }
  ops.rope(q, call.cos_sin, call.positions);
  ops.rope(k, call.cos_sin, call.positions);
  append(k, call.slots, call.k_plane);
  append(v, call.slots, call.v_plane);
}

void ref_linear(RefOps& ops, const TensorView& x, const TensorView& w, const TensorView& norm, float eps,
                RefLinearEnd end, const TensorView& out) {
  const std::int64_t rows = x.shape[0], k = x.shape[1], n = w.shape[0];
  std::vector<float> normed(static_cast<std::size_t>(rows * k)), pairs(static_cast<std::size_t>(rows * n));
  TensorView from = x;
  if (norm.data != nullptr) {
    from = TensorView::of(normed.data(), DType::kF32, {rows, k});
    ops.rms_norm(x, norm, eps, from);
  }
  if (end != RefLinearEnd::kSiluMul) return ops.linear(from, w, out, end == RefLinearEnd::kAdd);
  const TensorView both = TensorView::of(pairs.data(), DType::kF32, {rows, n});
  ops.linear(from, w, both, false);
  ops.silu_mul(both, out);
}

void ref_quantize_rows(const TensorView& x) {
  constexpr std::int64_t kGroup = 128;
  for (float* group = x.as<float>(); group < x.as<float>() + x.elements(); group += kGroup) {
    float largest = 0;
    for (std::int64_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::abs(group[i]));
    const float scale = largest > 0 ? largest / 448 : 1;
    for (std::int64_t i = 0; i < kGroup; ++i) group[i] = round_to_e4m3(group[i] / scale) * scale;
  }
}

}  // namespace levada::kernels
