#include "nn/dflash_draft.h"

#include <ATen/ops/sum.h>

#include "nn/products.h"

namespace levada::nn {
namespace {

// out = x w^T (+ bias)
void linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const at::Tensor& out) {
  multiply(x, w.t(), out, bias);
}

void add_bias_gradient(const at::Tensor& dy, const at::Tensor& dbias) {
  if (dbias.defined()) dbias.add_(at::sum(dy, {0}, false, at::kFloat));
}

std::string of_layer(const char* name, std::size_t layer) { return std::string(name) + "." + std::to_string(layer); }

}  // namespace

DflashDraft::DflashDraft(DraftGeometry geometry, DraftOps& ops, Scratch& scratch)
    : geometry_(std::move(geometry)), ops_(ops), scratch_(scratch), attention_(ops.make_attention(geometry_, scratch)) {
  saved_.resize(static_cast<std::size_t>(geometry_.layers));
  x_.resize(saved_.size() + 1);
}

at::Tensor DflashDraft::rows(const std::string& name, std::int64_t count, std::int64_t width) {
  return scratch_.get(name, {count, width}, type_);
}

at::Tensor DflashDraft::forward(const DraftBatch& batch, const DraftTensors& w, const at::Tensor& features,
                                const at::Tensor& embeddings) {
  const DraftGeometry& g = geometry_;
  type_ = w.fc.scalar_type();
  projected_ = rows("fc", batch.keys(), g.hidden);
  context_ = rows("context", batch.keys(), g.hidden);
  linear(features, w.fc, {}, projected_);
  ops_.rms(projected_, w.hidden_norm, g.eps, context_);
  x_[0] = embeddings;
  for (std::size_t layer = 0; layer < saved_.size(); ++layer) forward_layer(batch, w.layers[layer], layer);
  const at::Tensor y = rows("y", batch.rows(), g.hidden);
  ops_.rms(x_.back(), w.norm, g.eps, y);
  return y;
}

void DflashDraft::forward_layer(const DraftBatch& batch, const DraftLayerTensors& w, std::size_t layer) {
  const DraftGeometry& g = geometry_;
  const std::int64_t count = batch.rows();
  Saved& saved = saved_[layer];
  const at::Tensor normed = rows("normed", count, g.hidden);
  ops_.rms(x_[layer], w.input_norm, g.eps, normed);
  saved.qkv = rows(of_layer("qkv", layer), count, g.qkv_width());
  saved.context_kv = rows(of_layer("context_kv", layer), batch.keys(), 2 * g.kv_width());
  linear(normed, w.qkv, w.qkv_bias, saved.qkv);
  linear(context_, w.kv, w.kv_bias, saved.context_kv);
  saved.attended = rows(of_layer("attended", layer), count, g.q_width());
  saved.lse = scratch_.get(of_layer("lse", layer), {count * g.heads}, at::kFloat);
  attention_->forward(batch, g.windows[layer], w, saved.qkv, saved.context_kv, saved.attended, saved.lse);

  saved.middle = rows(of_layer("middle", layer), count, g.hidden);
  multiply(saved.attended, w.o.t(), saved.middle, x_[layer]);
  if (w.o_bias.defined()) saved.middle.add_(w.o_bias);
  ops_.rms(saved.middle, w.post_norm, g.eps, normed);
  saved.gate_up = rows(of_layer("gate_up", layer), count, 2 * g.intermediate);
  linear(normed, w.gate_up, {}, saved.gate_up);
  const at::Tensor activated = rows("activated", count, g.intermediate);
  ops_.silu_mul(saved.gate_up, activated);
  x_[layer + 1] = rows(of_layer("x", layer + 1), count, g.hidden);
  multiply(activated, w.down.t(), x_[layer + 1], saved.middle);
}

void DflashDraft::backward(const DraftBatch& batch, const DraftTensors& w, const DraftTensors& dw,
                           const at::Tensor& features, const at::Tensor& dy) {
  const DraftGeometry& g = geometry_;
  const at::Tensor dx = rows("dx", batch.rows(), g.hidden);
  const at::Tensor dcontext = rows("dcontext", batch.keys(), g.hidden);
  dcontext.zero_();
  ops_.rms_backward(x_.back(), w.norm, dy, g.eps, false, dx, dw.norm);
  for (std::size_t layer = saved_.size(); layer-- > 0;) {
    backward_mlp(w.layers[layer], dw.layers[layer], layer, dx);
    backward_attention(batch, w.layers[layer], dw.layers[layer], layer, dx, dcontext);
  }
  if (batch.keys() == 0) return;
  const at::Tensor dprojected = rows("dprojected", batch.keys(), g.hidden);
  ops_.rms_backward(projected_, w.hidden_norm, dcontext, g.eps, false, dprojected, dw.hidden_norm);
  add_weight_gradient(scratch_, dprojected, features, dw.fc);
}

// dx: gradient of the layer's output in, of the MLP's input out.
void DflashDraft::backward_mlp(const DraftLayerTensors& w, const DraftLayerTensors& dw, std::size_t layer,
                               const at::Tensor& dx) {
  const DraftGeometry& g = geometry_;
  const Saved& saved = saved_[layer];
  const std::int64_t count = dx.size(0);
  const at::Tensor activated = rows("activated", count, g.intermediate);
  ops_.silu_mul(saved.gate_up, activated);
  add_weight_gradient(scratch_, dx, activated, dw.down);
  const at::Tensor dactivated = rows("dactivated", count, g.intermediate);
  multiply(dx, w.down, dactivated);
  const at::Tensor dgate_up = rows("dgate_up", count, 2 * g.intermediate);
  ops_.silu_mul_backward(saved.gate_up, dactivated, dgate_up);
  const at::Tensor normed = rows("normed", count, g.hidden), dnormed = rows("dnormed", count, g.hidden);
  ops_.rms(saved.middle, w.post_norm, g.eps, normed);
  add_weight_gradient(scratch_, dgate_up, normed, dw.gate_up);
  multiply(dgate_up, w.gate_up, dnormed);
  ops_.rms_backward(saved.middle, w.post_norm, dnormed, g.eps, true, dx, dw.post_norm);
}

void DflashDraft::backward_attention(const DraftBatch& batch, const DraftLayerTensors& w, const DraftLayerTensors& dw,
                                     std::size_t layer, const at::Tensor& dx, const at::Tensor& dcontext) {
  const DraftGeometry& g = geometry_;
  const Saved& saved = saved_[layer];
  const std::int64_t count = batch.rows();
  add_weight_gradient(scratch_, dx, saved.attended, dw.o);
  add_bias_gradient(dx, dw.o_bias);
  const at::Tensor dattended = rows("dattended", count, g.q_width());
  multiply(dx, w.o, dattended);
  const at::Tensor dqkv = rows("dqkv", count, g.qkv_width());
  const at::Tensor dcontext_kv = rows("dcontext_kv", batch.keys(), 2 * g.kv_width());
  attention_->backward(batch, g.windows[layer], w, dw, saved.qkv, saved.context_kv, saved.attended, dattended,
                       saved.lse, dqkv, dcontext_kv);

  const at::Tensor normed = rows("normed", count, g.hidden), dnormed = rows("dnormed", count, g.hidden);
  ops_.rms(x_[layer], w.input_norm, g.eps, normed);
  add_weight_gradient(scratch_, dqkv, normed, dw.qkv);
  add_bias_gradient(dqkv, dw.qkv_bias);
  multiply(dqkv, w.qkv, dnormed);
  ops_.rms_backward(x_[layer], w.input_norm, dnormed, g.eps, true, dx, dw.input_norm);
  if (batch.keys() == 0) return;
  add_weight_gradient(scratch_, dcontext_kv, context_, dw.kv);
  add_bias_gradient(dcontext_kv, dw.kv_bias);
  multiply(dcontext_kv, w.kv, dcontext, dcontext);
}

BlockAttention::Context DflashDraft::context_keys(const DraftBatch& batch, const DraftTensors& weights,
                                                  std::size_t layer) {
  return attention_->project_context(batch, weights.layers[layer], saved_[layer].context_kv);
}

}  // namespace levada::nn
