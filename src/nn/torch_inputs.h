// What: a step's geometry as index tensors for libtorch: which slots rows go to and which slots each slice attends.
// Owner: one step.
// Thread: the worker's.
// Invariant: padding repeats a slot the slice itself owns, never a foreign or free one: a NaN there would pass through
// a mask. Everything is uploaded in one copy.
#pragma once

#include <optional>

#include "nn/backend.h"

namespace levada::nn {

struct TorchInputs final : StepInputs {
  // All slices that contribute one row, attended together.
  struct Single {
    at::Tensor rows;   // i64 [S]
    at::Tensor slots;  // i64 [S * longest]
    at::Tensor mask;   // bool [S, 1, 1, longest], false on padding
    std::int64_t longest = 0;
  };
  // A slice of several rows, attended alone.
  struct Chunk {
    std::int64_t first_row = 0, rows = 0;
    at::Tensor slots;  // i64 [context + rows]
    at::Tensor mask;   // bool [rows, context + rows]; undefined when plain causal (no context)
  };
  at::Tensor ids, slots;  // i64 [R]
  at::Tensor cos, sin;    // f32 [R, 1, d / 2]
  std::optional<Single> single;
  std::vector<Chunk> chunks;
};

std::unique_ptr<TorchInputs> make_torch_inputs(const StepShape& step, const at::Tensor& cos_sin);

}  // namespace levada::nn
