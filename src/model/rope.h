// What: the table of rotary cosines and sines of a model.
// Owner: the caller.
// Thread: any.
// Invariant: angles are float32 products of float32 frequencies, as the checkpoints were trained and checked with.
// Formulas: docs/models.md (default, yarn); linear and llama3 as their published definitions.
#pragma once

#include <vector>

#include "model/config.h"

namespace levada::model {

// head_dim / 2 frequencies.
std::vector<float> rope_frequencies(const RopeConfig& rope, std::int64_t head_dim);
// [positions, head_dim]: half cosines, then half sines.
void fill_cos_sin(const RopeConfig& rope, std::int64_t head_dim, std::int64_t positions, float* out);

}  // namespace levada::model
