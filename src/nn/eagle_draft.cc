#include "nn/eagle_draft.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace levada::nn {
namespace {

at::Tensor rms(const at::Tensor& x, const at::Tensor& w, double eps) { return at::rms_norm(x, {x.size(1)}, w, eps); }

// [rows, heads * d] -> [heads, rows, d]
at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
  return x.unflatten(1, {heads, x.size(1) / heads}).transpose(0, 1);
}

// Half-split rotation of [heads, rows, d]; row t stands at position t + first.
at::Tensor rotated(const at::Tensor& x, std::int64_t first, double theta) {
  const std::int64_t half = x.size(2) / 2;
  const auto wide = at::TensorOptions().dtype(at::kFloat).device(x.device());
  const at::Tensor frequencies =
      at::arange(half, wide.dtype(at::kDouble)).mul(-2.0 * std::log(theta) / static_cast<double>(x.size(2))).exp();
  const at::Tensor positions = at::arange(first, first + x.size(1), wide);
  const at::Tensor angles = positions.unsqueeze(1) * frequencies.to(at::kFloat).unsqueeze(0);
  const at::Tensor cos = angles.cos().to(x.scalar_type()), sin = angles.sin().to(x.scalar_type());
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 2);
}

}  // namespace

EagleDraft::EagleDraft(const EagleGeometry& geometry, EagleTensors tensors)
    : geometry_(geometry), tensors_(std::move(tensors)) {}

at::Tensor EagleDraft::start(const at::Tensor& features) {
  keys_.clear();
  values_.clear();
  return at::linear(features, tensors_.fc);
}

EagleDraft::Step EagleDraft::step(const at::Tensor& embeddings, const at::Tensor& hidden, std::int64_t tokens) {
  const EagleGeometry& g = geometry_;
  const EagleTensors& w = tensors_;
  const at::Tensor x = at::cat({rms(embeddings, w.input_layernorm, g.eps), rms(hidden, w.hidden_norm, g.eps)}, 1);
  const auto position = static_cast<std::int64_t>(keys_.size());  // of row 0: every step drafts one further
  const std::int64_t group = g.heads / g.kv_heads;
  const at::Tensor q = rotated(by_head(at::linear(x, w.q_proj), g.heads), position, g.rope_theta);
  const at::Tensor k = rotated(by_head(at::linear(x, w.k_proj), g.kv_heads), position, g.rope_theta);
  keys_.push_back(k.repeat_interleave(group, 0));
  values_.push_back(by_head(at::linear(x, w.v_proj), g.kv_heads).repeat_interleave(group, 0));

  Step step;
  step.hidden = hidden + at::linear(attend(q, tokens).transpose(0, 1).flatten(1), w.o_proj);
  const at::Tensor normed = rms(step.hidden, w.post_attention_layernorm, g.eps);
  const at::Tensor activated = at::silu(at::linear(normed, w.gate_proj)) * at::linear(normed, w.up_proj);
  step.hidden = step.hidden + at::linear(activated, w.down_proj);
  step.logits = at::linear(rms(step.hidden, w.norm, g.eps), w.lm_head);
  return step;
}

// One softmax over step 0's rows up to the own one and the own row of each later step.
at::Tensor EagleDraft::attend(const at::Tensor& q, std::int64_t tokens) const {
  const std::int64_t rows = q.size(1);
  const at::Tensor row = at::arange(rows, at::TensorOptions().dtype(at::kLong).device(q.device()));
  const at::Tensor hidden = row.unsqueeze(0).gt(row.unsqueeze(1)).logical_or(row.unsqueeze(0).ge(tokens));
  std::vector<at::Tensor> scores{
      q.matmul(keys_[0].transpose(1, 2)).masked_fill(hidden, -std::numeric_limits<float>::infinity())};
  for (std::size_t step = 1; step < keys_.size(); ++step) scores.push_back((q * keys_[step]).sum(2, /*keepdim=*/true));
  const double scale = 1 / std::sqrt(static_cast<double>(geometry_.head_dim));
  const at::Tensor weights = at::softmax(at::cat(scores, 2).to(at::kFloat) * scale, 2).to(q.scalar_type());
  at::Tensor out = weights.narrow(2, 0, rows).matmul(values_[0]);
  for (std::size_t step = 1; step < values_.size(); ++step) {
    out = out + weights.narrow(2, rows + static_cast<std::int64_t>(step) - 1, 1) * values_[step];
  }
  return out;
}

}  // namespace levada::nn
