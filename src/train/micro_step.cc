#include "train/micro_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "train/anchors.h"

namespace levada::train {

nn::LossRule loss_rule(const Options& options) {
  nn::LossRule rule;
  rule.gamma = options.loss_decay_gamma;
  rule.alpha = options.dpace_alpha;
  if (options.loss_type == "dpace") rule.kind = nn::LossKind::kDpace;
  if (options.loss_type == "dpace-cumulative-confidence-only") rule.kind = nn::LossKind::kDpaceConfidence;
  if (options.loss_type == "dpace-continuation-value-only") rule.kind = nn::LossKind::kDpaceContinuation;
  return rule;
}

MicroStep::MicroStep(const Options& options, const model::DraftConfig& config, DraftState& state,
                     const FrozenTensors& tables, nn::DraftOps& ops)
    : options_(options),
      config_(config),
      state_(state),
      ops_(ops),
      embedding_(tables.embedding.to(ops.place())),
      scratch_(ops.place()),
      draft_(state.geometry, ops, scratch_),
      objective_(tables.tied() ? embedding_ : tables.head.to(ops.place()), loss_rule(options),
                 options.objective_chunk_blocks, ops, scratch_) {}

Status MicroStep::check(const Sample& sample) const {
  const std::string where = "sample " + sample.sample_id;
  const std::size_t tokens = sample.input_ids.size();
  if (tokens == 0) return invalid_argument(where + ": has no tokens", "input_ids");
  if (sample.loss_mask.size() != tokens) {
    return invalid_argument(
        where + ": " + std::to_string(sample.loss_mask.size()) + " numbers for " + std::to_string(tokens) + " tokens",
        "loss_mask");
  }
  const std::size_t width = static_cast<std::size_t>(config_.features());
  const bool wide = !sample.hidden_states_f32.empty();
  const std::size_t numbers = wide ? sample.hidden_states_f32.size() : sample.hidden_states.size();
  if (numbers != tokens * width) {
    return invalid_argument(where + ": " + std::to_string(numbers) + " numbers, " + std::to_string(tokens) +
                                " tokens need " + std::to_string(tokens * width) + " (" +
                                std::to_string(config_.target_layer_ids.size()) + " layers of " +
                                std::to_string(config_.hidden) + ")",
                            "hidden_states");
  }
  if (sample.features_on_device && ops_.place().is_cpu()) {
    return invalid_argument(where + ": lie on a device, the trainer is on the CPU", "hidden_states");
  }
  if (!sample.anchor_uniforms.empty() && sample.anchor_uniforms.size() + 1 < tokens) {
    return invalid_argument(where + ": " + std::to_string(sample.anchor_uniforms.size()) + " numbers for " +
                                std::to_string(tokens) + " tokens",
                            "anchor_uniforms");
  }
  const auto outside = std::find_if(sample.input_ids.begin(), sample.input_ids.end(),
                                    [&](std::int64_t id) { return id < 0 || id >= config_.vocabulary; });
  if (outside != sample.input_ids.end()) {
    return invalid_argument(where + ": token " + std::to_string(*outside) + " is not in the vocabulary of " +
                                std::to_string(config_.vocabulary),
                            "input_ids");
  }
  return {};
}

at::Tensor MicroStep::staging(std::int64_t keys, std::int64_t width, at::ScalarType type) {
  if (!staging_.defined() || staging_.size(0) < keys) {
    staging_ = at::Tensor();
    staging_ = at::empty({keys, width}, at::TensorOptions().dtype(type).pinned_memory(true));
  }
  return staging_.narrow(0, 0, keys);
}

at::Tensor MicroStep::upload_features(std::span<const Sample> samples, std::span<const nn::DraftSequence> sequences,
                                      std::int64_t keys) {
  const std::int64_t width = config_.features();
  const auto type = state_.weights_flat.scalar_type();
  const at::Tensor all = scratch_.get("features", {keys, width}, type);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t rows = sequences[i].context();
    if (rows == 0) continue;
    // Only read; torch has no tensor of const memory.
    const Sample& sample = samples[i];
    const bool wide = !sample.hidden_states_f32.empty();
    const void* memory = wide ? static_cast<const void*>(sample.hidden_states_f32.data()) : sample.hidden_states.data();
    const at::TensorOptions options = at::TensorOptions().dtype(wide ? at::kFloat : at::kBFloat16);
    const at::Tensor from =
        at::from_blob(const_cast<void*>(memory), {rows, width},
                      options.device(sample.features_on_device ? ops_.place() : at::Device(at::kCPU)));
    const at::Tensor to = all.narrow(0, first, rows);
    if (from.device() == to.device()) {
      to.copy_(from);
    } else {
      // Free again: reading the last micro-step's likelihoods waited for this copy, which was queued before them.
      const at::Tensor staged = staging(keys, width, type).narrow(0, first, rows);
      to.copy_(staged.copy_(from), true);
    }
    first += rows;
  }
  return all;
}

// The sample cut to max_length, with its anchors.
nn::DraftSequence MicroStep::sequence_of(const Sample& sample) const {
  const auto tokens = std::min(sample.input_ids.size(), static_cast<std::size_t>(options_.max_length));
  const std::span<const std::int64_t> mask = sample.loss_mask.first(tokens);
  std::vector<float> drawn;
  if (sample.anchor_uniforms.empty()) {
    drawn = anchor_uniforms(static_cast<std::uint64_t>(options_.seed), sample.sample_id, sample.epoch,
                            static_cast<std::int64_t>(tokens));
  }
  nn::DraftSequence sequence;
  sequence.input_ids = sample.input_ids.first(tokens);
  sequence.anchors =
      pick_anchors(mask, drawn.empty() ? sample.anchor_uniforms : std::span<const float>(drawn), options_.num_anchors);
  return sequence;
}

Metrics MicroStep::run(std::span<const Sample> samples, bool train) {
  Metrics metrics;
  metrics.samples = static_cast<std::int64_t>(samples.size());
  std::vector<nn::DraftSequence> sequences;
  nn::DraftLabels labels;
  for (const Sample& sample : samples) {
    nn::DraftSequence sequence = sequence_of(sample);
    if (sequence.anchors.empty()) ++metrics.unlearnable_samples;
    const nn::DraftLabels own = nn::make_draft_labels(sequence, sample.loss_mask, config_.block_size);
    labels.labels.insert(labels.labels.end(), own.labels.begin(), own.labels.end());
    labels.mask.insert(labels.mask.end(), own.mask.begin(), own.mask.end());
    sequences.push_back(std::move(sequence));
  }
  if (labels.labels.empty()) return metrics;

  const nn::DraftBatch batch =
      nn::make_draft_batch(state_.geometry, sequences, config_.block_size, config_.mask_token_id, ops_.place());
  const at::Tensor features = upload_features(samples, sequences, batch.keys());
  at::Tensor embeddings = scratch_.get("embeddings", {batch.rows(), config_.hidden}, embedding_.scalar_type());
  at::index_select_out(embeddings, embedding_, 0, batch.block_ids);
  const at::Tensor y = draft_.forward(batch, state_.weights, features, embeddings);
  const at::Tensor dy = train ? scratch_.get("dy", y.sizes(), y.scalar_type()) : at::Tensor();
  const nn::ObjectiveResult result = objective_.run(labels, config_.block_size, y, dy, [&] {
    if (train) draft_.backward(batch, state_.weights, state_.gradients, features, dy);
  });

  metrics.loss_num = result.num;
  // D-PACE divides by sequences, as its reference does.
  metrics.loss_den = options_.loss_type == "dflash" ? result.weight : static_cast<double>(samples.size());
  metrics.hits = result.hits;
  metrics.slots = result.slots;
  metrics.accepted_prefix = result.accepted_prefix;
  metrics.blocks = result.blocks;
  return metrics;
}

}  // namespace levada::train
