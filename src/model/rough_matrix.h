// What: matrices as Q8_0, the form in which guesses are computed fastest (kernels::Ops::linear_rough).
// Owner: the result owns its numbers.
// Thread: any; uses no thread pool.
// Invariant: each block of 32 has the scale max|w| / 127 as float16; a number is at most half a step from what it was.
// Format: docs/formats/gguf.md.
#pragma once

#include <functional>
#include <span>

#include "nn/backend.h"

namespace levada::model {

// Whether a row of so many numbers can be Q8_0.
constexpr bool fits_q8_0(std::int64_t columns) { return columns % 32 == 0; }

// `row(r, out)` writes the numbers of row r.
nn::Matrix make_q8_0(std::int64_t rows, std::int64_t columns,
                     const std::function<void(std::int64_t, std::span<float>)>& row);

// The same matrix; as it is where it is Q8_0 already or cannot be.
nn::Matrix to_q8_0(const nn::Matrix& matrix);

}  // namespace levada::model
