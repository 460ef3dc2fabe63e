// What: the matrix product for 17 to 64 rows and small matrices, one kernel with the norm before and the residual or SiLU
// after it. There, launches and the latency of memory cost more than reading and multiplying.
// Owner: the caller's memory.
// Thread: any, one at a time per stream; asynchronous, capturable.
// Invariant: a block makes 32 x 32 sums. Each of its warps takes a part of the columns and asks for all of it at once, the
// weights before the predecessors end; a lane asks just for what it multiplies itself. Sums over warps come last, in order.
#pragma once

#include "kernels/cuda/linear.h"

namespace levada::kernels::cuda {

// Whether run_tiles takes this call (checked by Linears for shapes and types already).
bool fits_tiles(const LinearCall& call);
// Once per device, before run_tiles.
Status prepare_tiles();
Status run_tiles(const LinearCall& call, cudaStream_t stream);

}  // namespace levada::kernels::cuda
