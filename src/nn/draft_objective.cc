#include "nn/draft_objective.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>

#include <algorithm>

namespace levada::nn {
namespace {

// A host array as a tensor on `place`.
template <class T>
at::Tensor upload(const std::vector<T>& values, at::ScalarType type, at::Device place) {
  const at::Tensor host = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(type));
  std::copy(values.begin(), values.end(), host.data_ptr<T>());
  return place.is_cpu() ? host : host.to(place);
}

}  // namespace

DraftLabels make_draft_labels(const DraftSequence& sequence, std::span<const std::int64_t> loss_mask,
                              std::int64_t block) {
  DraftLabels out;
  const auto tokens = static_cast<std::int64_t>(sequence.input_ids.size());
  for (std::int64_t anchor : sequence.anchors) {
    for (std::int64_t offset = 0; offset < block; ++offset) {
      const auto at = static_cast<std::size_t>(std::min(anchor + offset, tokens - 1));
      const bool counts = offset > 0 && anchor + offset < tokens && loss_mask[at] > 0;
      out.labels.push_back(sequence.input_ids[at]);
      out.mask.push_back(counts ? 1.f : 0.f);
    }
  }
  return out;
}

DraftObjective::DraftObjective(at::Tensor head, LossRule rule, std::int64_t chunk_blocks, DraftOps& ops,
                               Scratch& scratch)
    : head_(std::move(head)), rule_(rule), chunk_blocks_(chunk_blocks), ops_(ops), scratch_(scratch) {}

ObjectiveResult DraftObjective::run(const DraftLabels& labels, std::int64_t block, const at::Tensor& y,
                                    const at::Tensor& dy) {
  ObjectiveResult result;
  result.nll.resize(labels.mask.size());
  result.weights.resize(labels.mask.size());
  result.hit.resize(labels.mask.size());
  if (dy.defined()) dy.zero_();
  const std::int64_t blocks = y.size(0) / block, chunk = chunk_blocks_ > 0 ? chunk_blocks_ : blocks;
  for (std::int64_t first = 0; first < blocks; first += chunk) {
    run_chunk(labels, block, first, std::min(blocks, first + chunk), y, dy, result);
  }
  return result;
}

void DraftObjective::run_chunk(const DraftLabels& labels, std::int64_t block, std::int64_t first, std::int64_t end,
                               const at::Tensor& y, const at::Tensor& dy, ObjectiveResult& result) {
  std::vector<std::int64_t> rows, wanted;
  for (std::int64_t row = first * block; row < end * block; ++row) {
    if (labels.mask[static_cast<std::size_t>(row)] <= 0) continue;
    rows.push_back(row);
    wanted.push_back(labels.labels[static_cast<std::size_t>(row)]);
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  const at::Tensor row_ids = upload(rows, at::kLong, ops_.place()), label_ids = upload(wanted, at::kLong, ops_.place());
  at::Tensor chosen = scratch_.get("objective.y", {count, y.size(1)}, y.scalar_type());
  at::Tensor logits = scratch_.get("objective.logits", {count, head_.size(0)}, y.scalar_type());
  const at::Tensor nll = scratch_.get("objective.nll", {count}, at::kFloat);
  const at::Tensor norm = scratch_.get("objective.norm", {count, 2}, at::kFloat);
  const at::Tensor argmax = scratch_.get("objective.argmax", {count}, at::kLong);
  if (count > 0) {
    at::index_select_out(chosen, y, 0, row_ids);
    at::matmul_out(logits, chosen, head_.t());
    ops_.cross_entropy(logits, label_ids, nll, norm, argmax);
  }
  const at::Tensor host_nll = nll.cpu(), host_argmax = argmax.cpu();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::size_t>(rows[i]);
    result.nll[row] = host_nll.data_ptr<float>()[i];
    result.hit[row] = host_argmax.data_ptr<std::int64_t>()[i] == wanted[i];
  }
  score_blocks(labels, block, first, end, result);
  if (!dy.defined() || count == 0) return;

  std::vector<float> coefficients;
  for (std::int64_t row : rows) coefficients.push_back(result.weights[static_cast<std::size_t>(row)]);
  ops_.cross_entropy_backward(logits, label_ids, norm, upload(coefficients, at::kFloat, ops_.place()));
  at::matmul_out(chosen, logits, head_);
  at::Tensor target = dy;
  target.index_copy_(0, row_ids, chosen);
}

// Weights, sums and metrics of blocks whose rows are known.
void DraftObjective::score_blocks(const DraftLabels& labels, std::int64_t block, std::int64_t first, std::int64_t end,
                                  ObjectiveResult& result) const {
  const auto size = static_cast<std::size_t>(block);
  for (std::int64_t b = first; b < end; ++b) {
    const std::size_t from = static_cast<std::size_t>(b) * size;
    const std::span<const float> mask = std::span(labels.mask).subspan(from, size);
    const std::span<const float> nll = std::span(result.nll).subspan(from, size);
    const std::span<float> weights = std::span(result.weights).subspan(from, size);
    loss_weights(rule_, mask, nll, weights);
    const std::int64_t prefix = accepted_prefix(mask, std::span(result.hit).subspan(from, size));
    double slots = 0;
    for (std::size_t o = 0; o < size; ++o) {
      result.num += static_cast<double>(nll[o]) * weights[o];
      result.weight += weights[o];
      slots += mask[o];
      result.hits += mask[o] > 0 && result.hit[from + o] != 0 ? 1 : 0;
    }
    result.slots += slots;
    result.blocks += slots > 0 ? 1 : 0;
    result.accepted_prefix += static_cast<double>(prefix);
    result.prefix.push_back(prefix);
  }
}

}  // namespace levada::nn
