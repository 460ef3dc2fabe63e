// What: dequantize_row, the published formulas of GGUF's quantised blocks, element by element.
// Owner: none; memory is the caller's.
// Thread: any.
// Invariant: as plain as the specification (ggml's block structures; docs/formats/gguf.md says them in words): what the
// kernels on stored weights are compared with, and where an embedding's row becomes floats.
#pragma once

#include "kernels/quant.h"

namespace levada::kernels {

// k elements of blocks as the file has them.
void dequantize_row(QuantFormat format, const std::byte* blocks, std::int64_t k, float* out);

}  // namespace levada::kernels
