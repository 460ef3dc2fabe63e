#include "model/draft_runner.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "nn/tensor.h"

namespace levada::model {
namespace {

// To every row; nothing where the draft has none.
void add_bias(const at::Tensor& bias, const at::Tensor& x) {
  if (!bias.defined()) return;
  const float* const added = bias.data_ptr<float>();
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    float* const values = x.data_ptr<float>() + row * x.stride(0);
    for (std::int64_t i = 0; i < x.size(1); ++i) values[i] += added[i];
  }
}

}  // namespace

void copy_draft_columns(const at::Tensor& x, const at::Tensor& to, std::int64_t first) {
  const auto bytes = static_cast<std::size_t>(x.size(1)) * sizeof(float);
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    std::memcpy(to.data_ptr<float>() + row * to.stride(0) + first, x.data_ptr<float>() + row * x.stride(0), bytes);
  }
}

DraftRunner::DraftRunner(std::shared_ptr<const CpuDraft> draft, nn::Backend& backend, kernels::Ops& ops,
                         const nn::Projection& embedding)
    : draft_(std::move(draft)),
      backend_(backend),
      ops_(ops),
      embedding_(embedding),
      head_(draft_->norm, static_cast<float>(draft_->config().norm_eps), draft_->head, draft_->rough()),
      block_(draft_->shape(), backend) {
  const std::vector<std::int64_t>& ids = draft_->config().target_layer_ids;
  last_layer_ = *std::max_element(ids.begin(), ids.end());
}

void DraftRunner::linear(const at::Tensor& x, const nn::Projection& w, const at::Tensor& out, bool accumulate) {
  if (draft_->rough()) return backend_.linear_rough(x, w, out, accumulate);
  backend_.linear(x, w, out, accumulate);
}

void DraftRunner::begin(const core::StepPlan& plan, const kernels::PagedBatch& batch,
                        const std::vector<DraftLayerPlanes>& planes) {
  const DraftConfig& c = draft_->config();
  const std::int64_t kv_width = draft_->kv_width(), rows = static_cast<std::int64_t>(plan.tokens.size());
  const std::int64_t widths[] = {c.features(), c.hidden, c.hidden, 2 * kv_width};
  const std::int64_t width = widths[0] + widths[1] + widths[2] + widths[3];
  if (!memory_.defined() || memory_.numel() < rows * width) {
    memory_ = at::Tensor();  // the old memory goes before the new comes
    memory_ = at::empty({rows * width}, at::TensorOptions().dtype(at::kFloat));
  }
  at::Tensor* const tensors[] = {&features_, &projected_, &context_, &kv_};
  std::int64_t first = 0;
  for (std::size_t i = 0; i < std::size(widths); ++i) {
    *tensors[i] = memory_.narrow(0, first, rows * widths[i]).view({rows, widths[i]});
    first += rows * widths[i];
  }
  planes_.clear();
  for (std::size_t layer = 0; layer < draft_->layers.size(); ++layer) {
    const auto mine = [&](const at::Tensor& plane) {
      return plane.narrow(2, 0, kv_width).unflatten(2, {c.kv_heads, c.head_dim});
    };
    planes_.push_back({mine(planes[layer].k), mine(planes[layer].v)});
  }
  inputs_ = backend_.prepare({batch, plan.tokens, plan.positions}, draft_->cos_sin);
  page_size_ = batch.page_size;
}

void DraftRunner::after_layer(std::int64_t layer, const at::Tensor& hidden) {
  const DraftConfig& c = draft_->config();
  for (std::size_t i = 0; i < c.target_layer_ids.size(); ++i) {
    if (c.target_layer_ids[i] != layer) continue;
    copy_draft_columns(hidden, features_, static_cast<std::int64_t>(i) * c.hidden);
  }
  if (layer == last_layer_) write_context();
}

void DraftRunner::write_context() {
  const DraftConfig& c = draft_->config();
  const auto eps = static_cast<float>(c.norm_eps);
  linear(features_, draft_->fc, projected_, false);
  backend_.rms_norm(projected_, draft_->hidden_norm, eps, context_);
  const auto heads = [&](std::int64_t first) {
    return kv_.narrow(1, first, draft_->kv_width()).unflatten(1, {c.kv_heads, c.head_dim});
  };
  const at::Tensor k = heads(0), v = heads(draft_->kv_width());
  for (std::size_t layer = 0; layer < draft_->layers.size(); ++layer) {
    const CpuDraft::Layer& w = draft_->layers[layer];
    linear(context_, w.kv, kv_, false);
    add_bias(w.kv_bias, kv_);
    backend_.rms_norm_heads(k, w.block.k_norm, eps);
    backend_.rope(*inputs_, k);
    backend_.write_kv(*inputs_, k, v, planes_[layer].k, planes_[layer].v);
  }
}

// A decoder layer but for the biases, and for what rows see being another thing than where they are written.
void DraftRunner::run_layer(std::size_t layer, const nn::StepInputs& writes, const nn::StepInputs& reads) {
  const CpuDraft::Layer& w = draft_->layers[layer];
  const auto eps = static_cast<float>(draft_->config().norm_eps);
  const float scale = 1.0f / std::sqrt(static_cast<float>(draft_->config().head_dim));
  backend_.rms_norm(block_.hidden, w.block.input_norm, eps, block_.normed);
  linear(block_.normed, w.block.qkv, block_.qkv, false);
  add_bias(w.qkv_bias, block_.qkv);
  backend_.rms_norm_heads(block_.q, w.block.q_norm, eps);
  backend_.rms_norm_heads(block_.k, w.block.k_norm, eps);
  backend_.rope(writes, block_.rotated);
  backend_.write_kv(writes, block_.k, block_.v, planes_[layer].k, planes_[layer].v);
  backend_.paged_attention(reads, block_.q, planes_[layer].k, planes_[layer].v, scale, block_.attended_heads);
  linear(block_.attended, w.block.o, block_.hidden, true);
  add_bias(w.o_bias, block_.hidden);

  backend_.rms_norm(block_.hidden, w.block.post_norm, eps, block_.normed);
  linear(block_.normed, w.block.gate_up, block_.gate_up, false);
  backend_.silu_mul(block_.gate_up, block_.activated);
  linear(block_.activated, w.block.down, block_.hidden, true);
}

std::vector<core::Token> DraftRunner::propose(const core::StepPlan& plan, std::span<const core::Token> sampled) {
  const DraftConfig& c = draft_->config();
  const DraftBlocks blocks(plan, sampled, static_cast<core::Token>(c.mask_token_id), c.sliding_window, page_size_);
  if (blocks.empty()) return {};
  const auto prepared = [&](const kernels::PagedBatch& batch) {
    return backend_.prepare({batch, blocks.ids(), blocks.positions()}, draft_->cos_sin);
  };
  const auto writes = prepared(blocks.writes());
  const auto full = prepared(blocks.reads(false)), sliding = prepared(blocks.reads(true));
  block_.resize(static_cast<std::int64_t>(blocks.ids().size()));
  backend_.embed(*writes, embedding_, block_.hidden);
  for (std::size_t layer = 0; layer < draft_->layers.size(); ++layer) {
    run_layer(layer, *writes, draft_->layers[layer].slides ? *sliding : *full);
  }
  return guesses(blocks.guessing_rows());
}

std::vector<core::Token> DraftRunner::guesses(std::span<const std::int32_t> rows) {
  const device::TensorView logits = nn::view(head_.logits(backend_, block_.hidden, rows));
  const kernels::SampleParams greedy{.temperature = 0};
  std::vector<core::Token> tokens;
  for (std::int64_t i = 0; i < logits.shape[0]; ++i) {
    auto* const values = logits.as<float>() + i * logits.strides[0];
    tokens.push_back(ops_.sample(device::TensorView::of(values, DType::kF32, {logits.shape[1]}), greedy));
  }
  return tokens;
}

}  // namespace levada::model
