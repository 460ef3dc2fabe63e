#include "nn/draft_objective.h"

#include <ATen/ops/index_select.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>

#include "nn/products.h"
#include "nn/upload.h"

namespace levada::nn {
namespace {

// The supervised rows' weights.
at::Tensor coefficients_of(std::span<const std::int64_t> ids, const std::vector<float>& weights, at::Device place) {
  std::vector<float> chosen;
  chosen.reserve(ids.size());
  for (std::int64_t row : ids) chosen.push_back(weights[static_cast<std::size_t>(row)]);
  return upload<float>(chosen, place);
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

// Supervised rows: where they are in the batch, what they should have said, and what becomes of them.
struct DraftObjective::Rows {
  std::span<const std::int64_t> ids, labels;
  at::Tensor device_ids, device_labels, nll, norm, argmax;

  Rows part(std::int64_t first, std::int64_t count) const {
    const auto at = static_cast<std::size_t>(first), size = static_cast<std::size_t>(count);
    auto some = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    return {
        ids.subspan(at, size), labels.subspan(at, size), some(device_ids), some(device_labels), some(nll), some(norm),
        some(argmax)};
  }
};

// Likelihoods and best tokens on their way to the host.
class DraftObjective::Fetch {
 public:
  explicit Fetch(const Rows& rows) : rows_(rows), nll_(to_host(rows.nll)), argmax_(to_host(rows.argmax)) {
    if (nll_.is_same(rows.nll)) return;
    there_.emplace(rows.nll.device().type());
    there_->record(c10::impl::VirtualGuardImpl(rows.nll.device().type()).getStream(rows.nll.device()));
  }
  void wait(ObjectiveResult& result) const {
    if (there_) there_->synchronize();
    const float* nll = nll_.const_data_ptr<float>();
    const std::int64_t* argmax = argmax_.const_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < rows_.ids.size(); ++i) {
      const auto row = static_cast<std::size_t>(rows_.ids[i]);
      result.nll[row] = nll[i];
      result.hit[row] = argmax[i] == rows_.labels[i];
    }
  }

 private:
  static at::Tensor to_host(const at::Tensor& x) {
    if (x.is_cpu()) return x;
    const at::Tensor host = at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true));
    return host.copy_(x, true);
  }
  const Rows& rows_;
  at::Tensor nll_, argmax_;
  std::optional<c10::Event> there_;
};

ObjectiveResult DraftObjective::run(const DraftLabels& labels, std::int64_t block, const at::Tensor& y,
                                    const at::Tensor& dy, const std::function<void()>& meanwhile) {
  ObjectiveResult result;
  result.nll.resize(labels.mask.size());
  result.weights.resize(labels.mask.size());
  result.hit.resize(labels.mask.size());
  if (dy.defined()) dy.zero_();
  std::vector<std::int64_t> ids, wanted;
  for (std::size_t row = 0; row < labels.mask.size(); ++row) {
    if (labels.mask[row] <= 0) continue;
    ids.push_back(static_cast<std::int64_t>(row));
    wanted.push_back(labels.labels[row]);
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  const Rows rows{ids,
                  wanted,
                  upload<std::int64_t>(ids, ops_.place()),
                  upload<std::int64_t>(wanted, ops_.place()),
                  scratch_.get("objective.nll", {count}, at::kFloat),
                  scratch_.get("objective.norm", {count, 2}, at::kFloat),
                  scratch_.get("objective.argmax", {count}, at::kLong)};

  // Weights that likelihoods don't change are known now: then no chunk waits for the one before to reach the host.
  at::Tensor coefficients;
  if (rule_.kind == LossKind::kDecay) {
    weigh(labels, block, ids, result);
    coefficients = coefficients_of(ids, result.weights, ops_.place());
  }
  const std::int64_t blocks = y.size(0) / block, chunk = chunk_blocks_ > 0 ? chunk_blocks_ : blocks;
  for (std::int64_t first = 0; first < blocks; first += chunk) {
    const std::int64_t from = place_of(ids, first * block), size = place_of(ids, (first + chunk) * block) - from;
    if (size == 0) continue;
    const Rows part = rows.part(from, size);
    if (coefficients.defined()) {
      run_chunk(part, y, dy, coefficients.narrow(0, from, size));
    } else {
      run_chunk(part, labels, block, y, dy, result);
    }
  }
  std::optional<Fetch> fetch;
  if (coefficients.defined()) fetch.emplace(rows);
  if (meanwhile) meanwhile();
  if (fetch) fetch->wait(result);
  count_blocks(labels, block, result);
  return result;
}

at::Tensor DraftObjective::logits_of(const Rows& rows, const at::Tensor& y) {
  const std::int64_t count = rows.nll.size(0);
  at::Tensor chosen = scratch_.get("objective.y", {count, y.size(1)}, y.scalar_type());
  const at::Tensor logits = scratch_.get("objective.logits", {count, head_.size(0)}, y.scalar_type());
  at::index_select_out(chosen, y, 0, rows.device_ids);
  multiply(chosen, head_.t(), logits);
  return logits;
}

// With weights known before.
void DraftObjective::run_chunk(const Rows& rows, const at::Tensor& y, const at::Tensor& dy,
                               const at::Tensor& coefficients) {
  const at::Tensor logits = logits_of(rows, y);
  if (!dy.defined()) return ops_.cross_entropy(logits, rows.device_labels, rows.nll, rows.norm, rows.argmax);
  ops_.cross_entropy_both(logits, rows.device_labels, rows.nll, rows.norm, rows.argmax, coefficients);
  pull_back(rows, logits, dy);
}

// With weights that depend on the chunk's likelihoods.
void DraftObjective::run_chunk(const Rows& rows, const DraftLabels& labels, std::int64_t block, const at::Tensor& y,
                               const at::Tensor& dy, ObjectiveResult& result) {
  const at::Tensor logits = logits_of(rows, y);
  ops_.cross_entropy(logits, rows.device_labels, rows.nll, rows.norm, rows.argmax);
  Fetch(rows).wait(result);
  weigh(labels, block, rows.ids, result);
  if (!dy.defined()) return;
  ops_.cross_entropy_backward(logits, rows.device_labels, rows.norm,
                              coefficients_of(rows.ids, result.weights, ops_.place()));
  pull_back(rows, logits, dy);
}

// Weights of all blocks that these rows, whole blocks' ones, belong to.
void DraftObjective::weigh(const DraftLabels& labels, std::int64_t block, std::span<const std::int64_t> ids,
                           ObjectiveResult& result) const {
  const auto size = static_cast<std::size_t>(block);
  std::int64_t done = -1;
  for (std::int64_t row : ids) {
    if (row / block == done) continue;
    done = row / block;
    const std::size_t from = static_cast<std::size_t>(done) * size;
    loss_weights(rule_, std::span(labels.mask).subspan(from, size), std::span(result.nll).subspan(from, size),
                 std::span(result.weights).subspan(from, size));
  }
}

// From the gradient of the logits to that of y.
void DraftObjective::pull_back(const Rows& rows, const at::Tensor& logits, const at::Tensor& dy) {
  const at::Tensor gradient = scratch_.get("objective.y", {logits.size(0), dy.size(1)}, dy.scalar_type());
  at::Tensor target = dy;
  multiply(logits, head_, gradient);
  target.index_copy_(0, rows.device_ids, gradient);
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
