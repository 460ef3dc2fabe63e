#include "nn/eagle_objective.h"

#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cmath>

#include "nn/products.h"
#include "nn/upload.h"

namespace levada::nn {
namespace {

template <class T>
std::vector<T> on_host(const at::Tensor& x) {
  const at::Tensor host = x.cpu();
  return {host.const_data_ptr<T>(), host.const_data_ptr<T>() + host.numel()};
}

// The sequence that a token of the batch belongs to.
const EagleBatch::Part& part_of(const EagleBatch& batch, std::int64_t token) {
  const auto after = std::upper_bound(batch.parts.begin(), batch.parts.end(), token,
                                      [](std::int64_t t, const EagleBatch::Part& part) { return t < part.first_key; });
  return *std::prev(after);
}

}  // namespace

// Who of a chunk learns from whom: the rows of all steps that predict from its tokens.
struct EagleObjective::Pairs {
  std::vector<std::int64_t> steps, places, teachers, best;  // place: row of y
  std::vector<float> weights;                               // decay^step where the row counts, else 0
  void add(std::int64_t step, std::int64_t place, std::int64_t teacher, std::int64_t best_token, float weight) {
    steps.push_back(step);
    places.push_back(place);
    teachers.push_back(teacher);
    best.push_back(best_token);
    weights.push_back(weight);
  }
};

EagleObjective::EagleObjective(at::Tensor head, std::span<const std::int64_t> kept, std::int64_t chunk_tokens,
                               TileOps& ops, Scratch& scratch)
    : head_(std::move(head)),
      kept_ids_(upload<std::int64_t>(kept, ops.place())),
      kept_(kept.begin(), kept.end()),
      is_kept_(static_cast<std::size_t>(head_.size(0))),
      chunk_tokens_(chunk_tokens),
      ops_(ops),
      scratch_(scratch) {
  for (std::int64_t id : kept_) is_kept_.at(static_cast<std::size_t>(id)) = true;
}

EagleResult EagleObjective::run(const EagleBatch& batch, const at::Tensor& last, const at::Tensor& y,
                                const at::Tensor& lm_head, const at::Tensor& dy, const at::Tensor& dlm_head) {
  EagleResult result;
  result.steps.resize(static_cast<std::size_t>(batch.steps));
  if (dy.defined()) dy.zero_();
  const std::size_t all = batch.teachers.size();
  const std::size_t chunk = chunk_tokens_ > 0 ? static_cast<std::size_t>(chunk_tokens_) : std::max<std::size_t>(1, all);
  for (std::size_t first = 0; first < all; first += chunk) {
    const std::span<const std::int64_t> tokens = std::span(batch.teachers).subspan(first, std::min(chunk, all - first));
    const Teacher teacher = teach(last, tokens);
    learn(pairs(batch, tokens, teacher), teacher, y, lm_head, dy, dlm_head, result);
  }
  double weight = 1;
  for (const EagleStepSums& step : result.steps) {
    result.num += weight * step.loss;
    weight *= kDecay;
  }
  return result;
}

EagleObjective::Teacher EagleObjective::teach(const at::Tensor& last, std::span<const std::int64_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size()), width = kept_ids_.size(0);
  at::Tensor states = scratch_.get("objective.last", {count, last.size(1)}, last.scalar_type());
  at::index_select_out(states, last, 0, upload<std::int64_t>(tokens, ops_.place()));
  const at::Tensor whole = scratch_.get("objective.whole", {count, head_.size(0)}, last.scalar_type());
  multiply(states, head_.t(), whole);
  Teacher teacher;
  teacher.logits = scratch_.get("objective.teacher", {count, width}, last.scalar_type());
  at::index_select_out(teacher.logits, whole, 1, kept_ids_);
  // Only their norms and best tokens are wanted: any label does.
  const at::Tensor label = scratch_.get("objective.label", {count}, at::kLong).zero_();
  const at::Tensor unused = scratch_.get("objective.unused", {count}, at::kFloat);
  const at::Tensor best = scratch_.get("objective.best", {count}, at::kLong);
  const at::Tensor of_whole = scratch_.get("objective.whole_norm", {count, 2}, at::kFloat);
  teacher.norm = scratch_.get("objective.teacher_norm", {count, 2}, at::kFloat);
  ops_.cross_entropy(teacher.logits, label, unused, teacher.norm, best);
  ops_.cross_entropy(whole, label, unused, of_whole, best);
  teacher.mass = teacher.norm.select(1, 0)
                     .sub(of_whole.select(1, 0))
                     .exp_()
                     .mul_(of_whole.select(1, 1))
                     .div_(teacher.norm.select(1, 1));
  teacher.best = on_host<std::int64_t>(best);
  return teacher;
}

EagleObjective::Pairs EagleObjective::pairs(const EagleBatch& batch, std::span<const std::int64_t> tokens,
                                            const Teacher& teacher) const {
  Pairs all;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const EagleBatch::Part& part = part_of(batch, tokens[i]);
    const bool counts = is_kept_[static_cast<std::size_t>(teacher.best[i])];
    for (std::int64_t step = 0; step < batch.steps; ++step) {
      const std::int64_t token = tokens[i] - step - 1;
      if (token < part.first_key) break;
      const auto row = std::lower_bound(batch.row_keys.begin(), batch.row_keys.end(), token) - batch.row_keys.begin();
      all.add(step, step * batch.row_count() + row, static_cast<std::int64_t>(i), teacher.best[i],
              counts ? static_cast<float>(std::pow(kDecay, step)) : 0.f);
    }
  }
  return all;
}

void EagleObjective::learn(const Pairs& pairs, const Teacher& teacher, const at::Tensor& y, const at::Tensor& lm_head,
                           const at::Tensor& dy, const at::Tensor& dlm_head, EagleResult& result) {
  const auto count = static_cast<std::int64_t>(pairs.places.size());
  const at::Tensor places = upload<std::int64_t>(pairs.places, ops_.place());
  at::Tensor chosen = scratch_.get("objective.y", {count, y.size(1)}, y.scalar_type());
  at::index_select_out(chosen, y, 0, places);
  const at::Tensor logits = scratch_.get("objective.logits", {count, lm_head.size(0)}, y.scalar_type());
  multiply(chosen, lm_head.t(), logits);
  const at::Tensor loss = scratch_.get("objective.loss", {count}, at::kFloat);
  const at::Tensor overlap = scratch_.get("objective.overlap", {count}, at::kFloat);
  const at::Tensor argmax = scratch_.get("objective.argmax", {count}, at::kLong);
  ops_.distill({teacher.logits, teacher.norm, teacher.mass, upload<std::int64_t>(pairs.teachers, ops_.place()),
                upload<float>(pairs.weights, ops_.place())},
               logits, loss, overlap, argmax);
  if (dy.defined()) {
    add_weight_gradient(scratch_, logits, chosen, dlm_head);
    multiply(logits, lm_head, chosen);
    at::Tensor target = dy;
    target.index_copy_(0, places, chosen);
  }
  const std::vector<float> losses = on_host<float>(loss), overlaps = on_host<float>(overlap);
  const std::vector<std::int64_t> said = on_host<std::int64_t>(argmax);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EagleStepSums& step = result.steps[static_cast<std::size_t>(pairs.steps[i])];
    step.rows += 1;
    step.hits += kept_[static_cast<std::size_t>(said[i])] == pairs.best[i] ? 1 : 0;
    if (pairs.weights[i] == 0) continue;
    step.counted += 1;
    step.loss += losses[i];
    step.overlap += overlaps[i];
  }
}

}  // namespace levada::nn
