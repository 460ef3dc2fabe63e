#include "kernels/ref/ref_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/page_scales.h"

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

float largest_of_row(const TensorView& heads, std::int64_t row) {
  const float* const first = heads.as<const float>() + row * heads.strides[0];
  float largest = 0;
  for (std::int64_t i = 0; i < heads.shape[1] * heads.shape[2]; ++i) largest = std::max(largest, std::abs(first[i]));
  return largest;
}

void write_page_scales(const RefRopeAppend& call, const TensorView& k, const TensorView& v) {
  const std::int64_t page_size = call.k_plane.shape[1];
  for (std::int64_t r = 0; r < call.qkv.shape[0]; ++r) {
    const std::int64_t slot = call.slots[static_cast<std::size_t>(r)];
    if (slot < 0 || slot % page_size != 0) continue;
    float* const scales = call.page_scales.as<float>() + slot / page_size * kPageScales;
    for (const TensorView* heads : {&k, &v}) {
      const float largest = largest_of_row(*heads, r);
      const bool usable = largest >= kLeastFirstToken && std::isfinite(largest);
      scales[heads == &v ? 1 : 0] = usable ? largest / kFirstTokenLargest : 1;
    }
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
  if (call.page_scales.data != nullptr) write_page_scales(call, k, v);
}

void ref_apply_page_scales(const TensorView& plane, const TensorView& page_scales, int which) {
  const std::int64_t numbers = plane.elements() / plane.shape[0];
  for (std::int64_t page = 0; page < plane.shape[0]; ++page) {
    const float scale = page_scales.as<const float>()[page * kPageScales + which];
    float* const first = plane.as<float>() + page * numbers;
    std::for_each(first, first + numbers, [&](float& x) { x *= scale; });
  }
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
