#include "model/eagle_runner.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "nn/tensor.h"

namespace levada::model {
namespace {

// `memory` is kept for later steps and grows; [rows, width] of it.
at::Tensor eagle_rows_of(at::Tensor& memory, std::int64_t rows, std::int64_t width) {
  if (!memory.defined() || memory.numel() < rows * width) {
    memory = at::Tensor();  // the old memory goes before the new comes
    memory = at::empty({rows * width}, at::TensorOptions().dtype(at::kFloat));
  }
  return memory.narrow(0, 0, rows * width).view({rows, width});
}

}  // namespace

EagleRunner::EagleRunner(std::shared_ptr<const CpuEagle> draft, nn::Backend& backend, kernels::Ops& ops)
    : draft_(std::move(draft)),
      backend_(backend),
      ops_(ops),
      head_(draft_->norm, static_cast<float>(draft_->config().norm_eps), draft_->head, draft_->rough()),
      block_(draft_->shape(), backend) {}

void EagleRunner::linear(const at::Tensor& x, const nn::Projection& w, const at::Tensor& out, bool accumulate) {
  if (draft_->rough()) return backend_.linear_rough(x, w, out, accumulate);
  backend_.linear(x, w, out, accumulate);
}

void EagleRunner::begin(const core::StepPlan& plan, const kernels::PagedBatch& batch,
                        const std::vector<DraftLayerPlanes>& planes) {
  const DraftConfig& c = draft_->config();
  const auto rows = static_cast<std::int64_t>(plan.tokens.size());
  eagle_rows_of(features_, rows, c.features());
  const auto mine = [&](const at::Tensor& plane) {
    return plane.narrow(2, 0, draft_->kv_width()).unflatten(2, {c.kv_heads, c.head_dim});
  };
  k_plane_ = mine(planes.front().k);
  v_plane_ = mine(planes.front().v);
  page_size_ = batch.page_size;
}

void EagleRunner::after_layer(std::int64_t layer, const at::Tensor& hidden) {
  const DraftConfig& c = draft_->config();
  const at::Tensor features = eagle_rows_of(features_, hidden.size(0), c.features());
  for (std::size_t i = 0; i < c.target_layer_ids.size(); ++i) {
    if (c.target_layer_ids[i] != layer) continue;
    const auto column = static_cast<std::int64_t>(i) * c.hidden;
    if (draft_->fc_norms.empty()) {
      copy_draft_columns(hidden, features, column);
      continue;
    }
    const at::Tensor normed = eagle_rows_of(normed_, hidden.size(0), c.hidden);
    backend_.rms_norm(hidden, draft_->fc_norms[i], static_cast<float>(c.norm_eps), normed);
    copy_draft_columns(normed, features, column);
  }
}

void EagleRunner::join(const nn::StepInputs& inputs, const at::Tensor& state, const at::Tensor& x) {
  const DraftConfig& c = draft_->config();
  const auto eps = static_cast<float>(c.norm_eps);
  const at::Tensor embedded = eagle_rows_of(projected_, state.size(0), c.hidden);
  const at::Tensor normed = eagle_rows_of(normed_, state.size(0), c.hidden);
  backend_.embed(inputs, draft_->embedding, embedded);
  backend_.rms_norm(embedded, draft_->input_norm, eps, normed);
  copy_draft_columns(normed, x, 0);
  backend_.rms_norm(state, draft_->hidden_norm, eps, normed);
  copy_draft_columns(normed, x, c.hidden);
}

// Leaves the rows' states in state_.
void EagleRunner::write_context(const EagleRows& rows) {
  const DraftConfig& c = draft_->config();
  const auto count = static_cast<std::int64_t>(rows.rows().size()), width = draft_->kv_width();
  const std::int64_t planned = features_.numel() / c.features();
  const at::Tensor taken = eagle_rows_of(joined_, count, c.features());
  backend_.gather_rows(eagle_rows_of(features_, planned, c.features()), rows.rows(), taken);
  const at::Tensor state = eagle_rows_of(state_, count, c.hidden);
  linear(taken, draft_->fc, state, false);

  const auto inputs = backend_.prepare({rows.writes(), rows.next_tokens(), rows.positions()}, draft_->cos_sin);
  const at::Tensor x = eagle_rows_of(joined_, count, 2 * c.hidden);
  join(*inputs, state, x);
  const at::Tensor kv = eagle_rows_of(kv_, count, 2 * width);
  linear(x, draft_->kv, kv, false);
  const auto heads = [&](std::int64_t first) {
    return kv.narrow(1, first, width).unflatten(1, {c.kv_heads, c.head_dim});
  };
  backend_.rope(*inputs, heads(0));
  backend_.write_kv(*inputs, heads(0), heads(width), k_plane_, v_plane_);
}

std::vector<core::Token> EagleRunner::run_step(const nn::StepInputs& inputs) {
  const CpuEagle& w = *draft_;
  const auto eps = static_cast<float>(w.config().norm_eps);
  const float scale = 1.0f / std::sqrt(static_cast<float>(w.config().head_dim));
  const at::Tensor x = eagle_rows_of(chain_x_, block_.hidden.size(0), 2 * w.config().hidden);
  join(inputs, block_.hidden, x);
  linear(x, w.qkv, block_.qkv, false);
  backend_.rope(inputs, block_.rotated);
  backend_.write_kv(inputs, block_.k, block_.v, k_plane_, v_plane_);
  backend_.paged_attention(inputs, block_.q, k_plane_, v_plane_, scale, block_.attended_heads);
  linear(block_.attended, w.o, block_.hidden, true);

  backend_.rms_norm(block_.hidden, w.post_norm, eps, block_.normed);
  linear(block_.normed, w.gate_up, block_.gate_up, false);
  backend_.silu_mul(block_.gate_up, block_.activated);
  linear(block_.activated, w.down, block_.hidden, true);
  std::vector<core::Token> tokens = guesses(block_.hidden.size(0));
  if (w.config().feeds_normed) {
    backend_.rms_norm(block_.hidden, w.norm, eps, block_.normed);
    copy_draft_columns(block_.normed, block_.hidden, 0);
  }
  return tokens;
}

std::vector<core::Token> EagleRunner::guesses(std::int64_t rows) {
  std::vector<std::int32_t> all;
  for (std::int64_t row = 0; row < rows; ++row) all.push_back(static_cast<std::int32_t>(row));
  const device::TensorView logits = nn::view(head_.logits(backend_, block_.hidden, all));
  const kernels::SampleParams greedy{.temperature = 0};
  std::vector<core::Token> tokens;
  for (std::int64_t i = 0; i < logits.shape[0]; ++i) {
    auto* const values = logits.as<float>() + i * logits.strides[0];
    const core::Token row = ops_.sample(device::TensorView::of(values, DType::kF32, {logits.shape[1]}), greedy);
    tokens.push_back(draft_->ids[static_cast<std::size_t>(row)]);
  }
  return tokens;
}

std::vector<core::Token> EagleRunner::propose(const core::StepPlan& plan, std::span<const core::Token> sampled) {
  const EagleRows rows(plan, sampled, page_size_);
  if (rows.empty()) return {};
  write_context(rows);
  std::vector<EagleRows::Chain> live(rows.chains().begin(), rows.chains().end());
  std::vector<std::vector<core::Token>> guessed(live.size());  // of every chain
  std::vector<std::size_t> whose;                              // of the live ones
  std::vector<std::int32_t> ids, taken;
  for (std::size_t i = 0; i < live.size(); ++i) {
    whose.push_back(i);
    ids.push_back(live[i].token);
    taken.push_back(live[i].row);
  }
  const std::int64_t hidden = draft_->config().hidden;
  at::Tensor from = eagle_rows_of(state_, static_cast<std::int64_t>(rows.rows().size()), hidden);
  for (std::int32_t step = 0; !live.empty(); ++step) {
    const EagleStep shape(live, step, plan.block_tables, page_size_);
    block_.resize(static_cast<std::int64_t>(live.size()));
    backend_.gather_rows(from, taken, block_.hidden);
    const auto inputs = backend_.prepare({shape.batch(), ids, shape.positions()}, draft_->cos_sin);
    const std::vector<core::Token> tokens = run_step(*inputs);
    from = eagle_rows_of(fed_, static_cast<std::int64_t>(live.size()), hidden);
    copy_draft_columns(block_.hidden, from, 0);
    ids.clear();
    taken.clear();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < live.size(); ++i) {
      guessed[whose[i]].push_back(tokens[i]);
      if (live[i].steps == step + 1) continue;
      ids.push_back(tokens[i]);
      taken.push_back(static_cast<std::int32_t>(i));
      live[kept] = live[i];
      whose[kept++] = whose[i];
    }
    live.resize(kept);
  }
  std::vector<core::Token> all;
  for (const auto& chain : guessed) all.insert(all.end(), chain.begin(), chain.end());
  return all;
}

}  // namespace levada::model
