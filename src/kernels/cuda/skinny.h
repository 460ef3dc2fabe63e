// What: the matrix product for few rows, one kernel with the norm before and the residual or SiLU after it. What it
// costs is the time to read the weights.
// Owner: the caller's memory.
// Thread: any, one at a time per stream; asynchronous, capturable.
// Invariant: a block keeps the rows of x in shared memory and walks over tiles of 8 weight rows. Each lane streams just
// the weights that it multiplies through its own ring in shared memory, so that loads run ahead over tile borders, and
// over the border to the previous kernel: weights never change, so they are asked for before the predecessors end.
#pragma once

#include "kernels/cuda/linear.h"

namespace levada::kernels::cuda {

// Whether run_skinny takes this call (checked by Linears for shapes and types already).
bool fits_skinny(const LinearCall& call);
// Once per device, before run_skinny.
Status prepare_skinny();
Status run_skinny(const LinearCall& call, cudaStream_t stream);

}  // namespace levada::kernels::cuda
