// What: DraftState, a draft's weights with their float32 masters, AdamW moments and gradients, each one flat buffer.
// Owner: the trainer. Private to the room.
// Thread: the trainer's.
// Invariant: weights are always the rounded masters; every buffer has the layout of nn/draft_layout.h.
#pragma once

#include "model/draft_config.h"
#include "nn/draft_layout.h"
#include "nn/draft_ops.h"

namespace levada::train {

nn::DraftGeometry geometry_of(const model::DraftConfig& config);

struct DraftState {
  // Zeroed buffers; weights in `type`.
  DraftState(const nn::DraftGeometry& geometry, at::ScalarType type, at::Device place);

  // Masters drawn from `seed`: N(0, 0.02^2), biases 0, the last norm `output_norm`, the others 1. The same on every
  // machine.
  void draw_masters(std::uint64_t seed, float output_norm);
  // Weights from masters.
  void round_weights();
  std::int64_t bytes() const;

  nn::DraftGeometry geometry;
  std::vector<nn::NamedSlice> slices;
  at::Tensor weights_flat, masters, first_moment, second_moment, gradients_flat;
  nn::DraftTensors weights, gradients;
  std::int64_t steps = 0;    // of the schedule
  std::int64_t updates = 0;  // of AdamW: steps that had something to learn from
};

}  // namespace levada::train
