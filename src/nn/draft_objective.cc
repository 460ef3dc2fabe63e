#include "nn/draft_objective.h"

#include <ATen/ops/index_select.h>

#include <algorithm>

#include "nn/products.h"

namespace levada::nn {
namespace {

// A host array as a tensor on `place`.
template <class T>
at::Tensor upload(const std::vector<T>& values, at::ScalarType type, at::Device place) {
  const at::Tensor host = at::empty({static_cast<std::int64_t>(values.size())}, at::TensorOptions().dtype(type));
  std::copy(values.begin(), values.end(), host.data_ptr<T>());
  return place.is_cpu() ? host : host.to(place);
}

// The supervised rows' weights.
at::Tensor coefficients_of(std::span<const std::int64_t> ids, const std::vector<float>& weights, at::Device place) {
  std::vector<float> chosen;
  chosen.reserve(ids.size());
  for (std::int64_t row : ids) chosen.push_back(weights[static_cast<std::size_t>(row)]);
  return upload(chosen, at::kFloat, place);
}

// How many supervised rows lie before batch row `row`.
std::int64_t place_of(const std::vector<std::int64_t>& ids, std::int64_t row) {
  return std::lower_bound(ids.begin(), ids.end(), row) - ids.begin();
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

// The supervised rows: where they are in the batch, what they should have said, and what became of them.
struct DraftObjective::Rows {
  std::vector<std::int64_t> ids, labels;
  at::Tensor device_ids, device_labels, nll, norm, argmax;
};

ObjectiveResult DraftObjective::run(const DraftLabels& labels, std::int64_t block, const at::Tensor& y,
                                    const at::Tensor& dy) {
  ObjectiveResult result;
  result.nll.resize(labels.mask.size());
  result.weights.resize(labels.mask.size());
  result.hit.resize(labels.mask.size());
  if (dy.defined()) dy.zero_();
  Rows rows;
  for (std::size_t row = 0; row < labels.mask.size(); ++row) {
    if (labels.mask[row] <= 0) continue;
    rows.ids.push_back(static_cast<std::int64_t>(row));
    rows.labels.push_back(labels.labels[row]);
  }
  const auto count = static_cast<std::int64_t>(rows.ids.size());
  rows.device_ids = upload(rows.ids, at::kLong, ops_.place());
  rows.device_labels = upload(rows.labels, at::kLong, ops_.place());
  rows.nll = scratch_.get("objective.nll", {count}, at::kFloat);
  rows.norm = scratch_.get("objective.norm", {count, 2}, at::kFloat);
  rows.argmax = scratch_.get("objective.argmax", {count}, at::kLong);

  const std::int64_t blocks = y.size(0) / block, chunk = chunk_blocks_ > 0 ? chunk_blocks_ : blocks;
  // Weights that likelihoods don't change are known now: then no chunk waits for the one before to reach the host.
  const bool known = rule_.kind == LossKind::kDecay;
  at::Tensor coefficients;
  if (known) {
    weigh(labels, block, 0, blocks, result);
    coefficients = coefficients_of(rows.ids, result.weights, ops_.place());
  }
  for (std::int64_t first = 0; first < blocks; first += chunk) {
    const std::int64_t end = std::min(blocks, first + chunk);
    const std::int64_t from = place_of(rows.ids, first * block), size = place_of(rows.ids, end * block) - from;
    const at::Tensor logits = scratch_.get("objective.logits", {size, head_.size(0)}, y.scalar_type());
    if (size > 0) score(rows, from, size, y, logits);
    if (!known) {
      fetch(rows, from, size, result);
      weigh(labels, block, first, end, result);
    }
    if (!dy.defined() || size == 0) continue;
    pull_back(rows, from, size,
              known ? coefficients.narrow(0, from, size)
                    : coefficients_of(
                          std::span(rows.ids).subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(size)),
                          result.weights, ops_.place()),
              logits, dy);
  }
  if (known) fetch(rows, 0, count, result);
  count_blocks(labels, block, result);
  return result;
}

void DraftObjective::score(const Rows& rows, std::int64_t first, std::int64_t count, const at::Tensor& y,
                           const at::Tensor& logits) {
  at::Tensor chosen = scratch_.get("objective.y", {count, y.size(1)}, y.scalar_type());
  at::index_select_out(chosen, y, 0, rows.device_ids.narrow(0, first, count));
  multiply(chosen, head_.t(), logits);
  ops_.cross_entropy(logits, rows.device_labels.narrow(0, first, count), rows.nll.narrow(0, first, count),
                     rows.norm.narrow(0, first, count), rows.argmax.narrow(0, first, count));
}

// Likelihoods and hits of some rows to the host.
void DraftObjective::fetch(const Rows& rows, std::int64_t first, std::int64_t count, ObjectiveResult& result) const {
  const at::Tensor nll = rows.nll.narrow(0, first, count).cpu(), argmax = rows.argmax.narrow(0, first, count).cpu();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(first + i), row = static_cast<std::size_t>(rows.ids[at]);
    result.nll[row] = nll.data_ptr<float>()[i];
    result.hit[row] = argmax.data_ptr<std::int64_t>()[i] == rows.labels[at];
  }
}

void DraftObjective::weigh(const DraftLabels& labels, std::int64_t block, std::int64_t first, std::int64_t end,
                           ObjectiveResult& result) const {
  const auto size = static_cast<std::size_t>(block);
  for (std::size_t from = static_cast<std::size_t>(first) * size; from < static_cast<std::size_t>(end) * size;
       from += size) {
    loss_weights(rule_, std::span(labels.mask).subspan(from, size), std::span(result.nll).subspan(from, size),
                 std::span(result.weights).subspan(from, size));
  }
}

// From logits to the gradient of y: the logits are overwritten.
void DraftObjective::pull_back(const Rows& rows, std::int64_t first, std::int64_t count, const at::Tensor& coefficients,
                               const at::Tensor& logits, const at::Tensor& dy) {
  ops_.cross_entropy_backward(logits, rows.device_labels.narrow(0, first, count), rows.norm.narrow(0, first, count),
                              coefficients);
  at::Tensor gradient = scratch_.get("objective.y", {count, dy.size(1)}, dy.scalar_type()), target = dy;
  multiply(logits, head_, gradient);
  target.index_copy_(0, rows.device_ids.narrow(0, first, count), gradient);
}

// Sums and metrics of blocks whose rows and weights are known.
void DraftObjective::count_blocks(const DraftLabels& labels, std::int64_t block, ObjectiveResult& result) const {
  const auto size = static_cast<std::size_t>(block);
  for (std::size_t from = 0; from < labels.mask.size(); from += size) {
    const std::span<const float> mask = std::span(labels.mask).subspan(from, size);
    const std::int64_t prefix = accepted_prefix(mask, std::span(result.hit).subspan(from, size));
    double slots = 0;
    for (std::size_t o = 0; o < size; ++o) {
      result.num += static_cast<double>(result.nll[from + o]) * result.weights[from + o];
      result.weight += result.weights[from + o];
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
