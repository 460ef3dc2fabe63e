#include "nn/eagle_draft.h"

#include <ATen/ops/index_select.h>

#include "nn/products.h"

namespace levada::nn {
namespace {

std::string of_step(const char* name, std::int64_t step) { return std::string(name) + "." + std::to_string(step); }

}  // namespace

EagleDraft::EagleDraft(const EagleGeometry& geometry, TileOps& ops, Scratch& scratch)
    : geometry_(geometry), ops_(ops), scratch_(scratch), attention_(geometry, ops, scratch) {
  steps_.resize(static_cast<std::size_t>(geometry.steps));
}

at::Tensor EagleDraft::rows(const std::string& name, std::int64_t count, std::int64_t width) {
  return scratch_.get(name, {count, width}, type_);
}

at::Tensor EagleDraft::forward(const EagleBatch& batch, const EagleTensors& w, const at::Tensor& features,
                               const at::Tensor& table) {
  const EagleGeometry& g = geometry_;
  type_ = w.fc.scalar_type();
  const std::int64_t count = batch.row_count();
  const at::Tensor y = rows("y", g.steps * count, g.hidden);
  for (std::int64_t step = 0; step < g.steps; ++step) {
    Saved& saved = steps_[static_cast<std::size_t>(step)];
    const at::Tensor ids = step == 0 ? batch.key_ids : batch.row_ids[static_cast<std::size_t>(step) - 1];
    saved.embeddings = rows(of_step("embeddings", step), ids.size(0), g.hidden);
    at::index_select_out(saved.embeddings, table, 0, ids);
    if (step == 0) {
      saved.in = rows("fc", batch.keys(), g.hidden);
      multiply(features, w.fc.t(), saved.in);
    } else {
      saved.in = steps_[static_cast<std::size_t>(step) - 1].out;
    }
    forward_step(batch, w, step);
    ops_.rms(saved.out, w.norm, g.eps, y.narrow(0, step * count, count));
  }
  return y;
}

at::Tensor EagleDraft::layer_input(const EagleTensors& w, const Saved& saved) {
  const std::int64_t width = geometry_.hidden, count = saved.in.size(0);
  const at::Tensor x = rows("x", count, 2 * width), normed = rows("half of x", count, width);
  ops_.rms(saved.embeddings, w.input_norm, geometry_.eps, normed);
  x.narrow(1, 0, width).copy_(normed);
  ops_.rms(saved.in, w.hidden_norm, geometry_.eps, normed);
  x.narrow(1, width, width).copy_(normed);
  return x;
}

// Of the rows, before rotation.
at::Tensor EagleDraft::queries(const EagleBatch& batch, std::int64_t step) {
  const Saved& saved = steps_[static_cast<std::size_t>(step)];
  const at::Tensor all = saved.qkv.narrow(1, 0, geometry_.q_width());
  if (step > 0) return all;
  at::Tensor chosen = rows("queries", batch.row_count(), geometry_.q_width());
  return at::index_select_out(chosen, all, 0, batch.rows);
}

void EagleDraft::forward_step(const EagleBatch& batch, const EagleTensors& w, std::int64_t step) {
  const EagleGeometry& g = geometry_;
  const std::int64_t count = batch.row_count();
  Saved& saved = steps_[static_cast<std::size_t>(step)];
  saved.qkv = rows(of_step("qkv", step), saved.in.size(0), g.qkv_width());
  multiply(layer_input(w, saved), w.qkv.t(), saved.qkv);
  const at::Tensor kv = saved.qkv.narrow(1, g.q_width(), 2 * g.kv_width());
  saved.residual = saved.in;
  if (step == 0) {
    attention_.begin(batch, kv);
    saved.residual = rows("residual", count, g.hidden);
    at::index_select_out(saved.residual, saved.in, 0, batch.rows);
  } else {
    attention_.add(batch, step, kv);
  }
  saved.attended = rows(of_step("attended", step), count, g.q_width());
  saved.lse = scratch_.get(of_step("lse", step), {count * g.heads}, at::kFloat);
  attention_.forward(batch, step, queries(batch, step), saved.attended, saved.lse);

  saved.middle = rows(of_step("middle", step), count, g.hidden);
  multiply(saved.attended, w.o.t(), saved.middle, saved.residual);
  const at::Tensor normed = rows("normed", count, g.hidden), activated = rows("activated", count, g.intermediate);
  ops_.rms(saved.middle, w.post_norm, g.eps, normed);
  saved.gate_up = rows(of_step("gate_up", step), count, 2 * g.intermediate);
  multiply(normed, w.gate_up.t(), saved.gate_up);
  ops_.silu_mul(saved.gate_up, activated);
  saved.out = rows(of_step("out", step), count, g.hidden);
  multiply(activated, w.down.t(), saved.out, saved.middle);
}

void EagleDraft::backward(const EagleBatch& batch, const EagleTensors& w, const EagleTensors& dw,
                          const at::Tensor& features, const at::Tensor& dy) {
  const EagleGeometry& g = geometry_;
  const std::int64_t count = batch.row_count();
  const at::Tensor dx = rows("dx", count, g.hidden);
  attention_.begin_backward();
  for (std::int64_t step = g.steps; step-- > 0;) {
    const Saved& saved = steps_[static_cast<std::size_t>(step)];
    ops_.rms_backward(saved.out, w.norm, dy.narrow(0, step * count, count), g.eps, step + 1 < g.steps, dx, dw.norm);
    backward_mlp(w, dw, saved, dx);
    backward_attention(batch, w, dw, step, dx);
  }
  add_weight_gradient(scratch_, rows("dfc", batch.keys(), g.hidden), features, dw.fc);
}

// dx: gradient of the step's output in, of the MLP's input out.
void EagleDraft::backward_mlp(const EagleTensors& w, const EagleTensors& dw, const Saved& saved, const at::Tensor& dx) {
  const EagleGeometry& g = geometry_;
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

// dx: gradient of the attention's output in, of the step's state out; of step 0, whose state has a row per token, into "dfc".
void EagleDraft::backward_attention(const EagleBatch& batch, const EagleTensors& w, const EagleTensors& dw,
                                    std::int64_t step, const at::Tensor& dx) {
  const EagleGeometry& g = geometry_;
  const Saved& saved = steps_[static_cast<std::size_t>(step)];
  const std::int64_t count = batch.row_count(), inputs = saved.in.size(0);
  add_weight_gradient(scratch_, dx, saved.attended, dw.o);
  const at::Tensor dattended = rows("dattended", count, g.q_width());
  multiply(dx, w.o, dattended);

  const at::Tensor dqkv = rows("dqkv", inputs, g.qkv_width()), dqueries = dqkv.narrow(1, 0, g.q_width());
  const at::Tensor dq = step == 0 ? rows("dq", count, g.q_width()) : dqueries;
  attention_.backward(batch, step, queries(batch, step), saved.attended, dattended, saved.lse, dq);
  if (step == 0) dqueries.zero_().index_copy_(0, batch.rows, dq);
  attention_.take(batch, step, dqkv.narrow(1, g.q_width(), 2 * g.kv_width()));

  add_weight_gradient(scratch_, dqkv, layer_input(w, saved), dw.qkv);
  const at::Tensor dhalf = rows("half of dx", inputs, g.hidden), unused = rows("dembeddings", inputs, g.hidden);
  multiply(dqkv, w.qkv.narrow(1, 0, g.hidden), dhalf);
  ops_.rms_backward(saved.embeddings, w.input_norm, dhalf, g.eps, false, unused, dw.input_norm);
  multiply(dqkv, w.qkv.narrow(1, g.hidden, g.hidden), dhalf);
  at::Tensor dstate = dx;
  if (step == 0) {
    dstate = rows("dfc", inputs, g.hidden);
    dstate.zero_().index_copy_(0, batch.rows, dx);
  }
  ops_.rms_backward(saved.in, w.hidden_norm, dhalf, g.eps, true, dstate, dw.hidden_norm);
}

}  // namespace levada::nn
