// What: EagleBatch, the geometry of one micro-step of EAGLE-3: whose tokens lie where, from which of them the draft rolls out,
// and what each row of each step is fed and supervised by.
// Owner: the step.
// Thread: the trainer's.
// Invariant: sequences lie one after the other without padding. Every token is a key of step 0; rows are the tokens whose
// rollout meets a supervised position, so a prompt costs keys and no rollouts. Row t of step s stands at position t + s, is
// fed token t + s + 1, and its teacher is the target's state of that token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/eagle_layout.h"

namespace levada::nn {

struct EagleSequence {
  std::span<const std::int64_t> input_ids, loss_mask;  // [tokens]; the last token supervises nothing, whatever its mask
};

struct EagleBatch {
  std::int64_t steps = 0;
  struct Part {
    std::int64_t first_key = 0, keys = 0;
    std::int64_t first_row = 0, rows = 0;
  };
  std::vector<Part> parts;             // one per sequence
  std::vector<std::int64_t> row_keys;  // per row its token, ascending, counted from the batch's first
  std::vector<std::int64_t> teachers;  // tokens, ascending, whose target states supervise somebody
  at::Tensor rows;                     // int64: row_keys
  at::Tensor key_begin, key_end;       // int64 [rows]: the keys of step 0 a row sees
  at::Tensor key_ids;                  // int64 [keys]: fed to step 0 of each token; 0 behind a sequence's end
  std::vector<at::Tensor> row_ids;     // int64 [rows] of steps 1, 2, ..
  at::Tensor key_angles;               // f32 [keys, head_dim]
  std::vector<at::Tensor> row_angles;  // f32 [rows, head_dim] of every step

  std::int64_t keys() const { return parts.empty() ? 0 : parts.back().first_key + parts.back().keys; }
  std::int64_t row_count() const { return static_cast<std::int64_t>(row_keys.size()); }
};

EagleBatch make_eagle_batch(const EagleGeometry& geometry, std::span<const EagleSequence> sequences, at::Device place);

}  // namespace levada::nn
