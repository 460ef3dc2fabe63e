// What: what the EAGLE-3 tests share: one rollout with its objective, forward and backward, over given samples.
// Owner: the test.
// Thread: one.
// Invariant: samples have no padding: what a golden pads is cut off.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "nn/dflash_support_test.h"
#include "nn/eagle_draft.h"
#include "nn/eagle_objective.h"

namespace levada::nn::test {

struct EagleSample {
  std::vector<std::int64_t> ids, mask;
  at::Tensor features, last;  // [tokens, ..] float32
};

struct EagleRun {
  EagleRun(const EagleGeometry& g, const at::Tensor& flat, std::vector<EagleSample> given, const at::Tensor& table,
           const at::Tensor& head, std::span<const std::int64_t> kept, TileOps& ops, std::int64_t chunk = 0,
           bool train = true)
      : samples(std::move(given)), scratch(at::kCPU), draft(g, ops, scratch) {
    const at::ScalarType type = flat.scalar_type();
    std::vector<EagleSequence> sequences;
    std::vector<at::Tensor> features, last;
    for (const EagleSample& sample : samples) {
      sequences.push_back({sample.ids, sample.mask});
      features.push_back(sample.features);
      last.push_back(sample.last);
    }
    batch = make_eagle_batch(g, sequences, at::kCPU);
    gradients = at::zeros({eagle_parameters(g)}, at::TensorOptions().dtype(at::kFloat));
    const EagleTensors w = bind_eagle(g, flat), dw = bind_eagle(g, gradients);
    const at::Tensor rows = at::cat(features).to(type);
    y = draft.forward(batch, w, rows, table.to(type));
    EagleObjective objective(head.to(type), kept, chunk, ops, scratch);
    const at::Tensor dy = train ? at::empty(y.sizes(), y.options()) : at::Tensor();
    result = objective.run(batch, at::cat(last).to(type), y, w.lm_head, dy, dw.lm_head);
    if (train) draft.backward(batch, w, dw, rows, dy);
  }
  std::vector<EagleSample> samples;
  Scratch scratch;
  EagleDraft draft;
  EagleBatch batch;
  at::Tensor y, gradients;
  EagleResult result;
};

}  // namespace levada::nn::test
