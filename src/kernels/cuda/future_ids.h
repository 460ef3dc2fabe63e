// What: a step's input ids that the step before has only just sampled, taken from where it left them on the device.
// Owner: memory is the caller's.
// Thread: any, one at a time per stream; capturable in a graph.
// Invariant: rows whose source is negative keep the id they have.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/status.h"

namespace levada::kernels::cuda {

// ids[r] = samples[sources[r]] where sources[r] >= 0. Device arrays of `rows` entries; a source lies inside samples.
Status fill_future_ids(std::int32_t* ids, const std::int32_t* sources, const std::int32_t* samples, std::int32_t rows,
                       cudaStream_t stream);

}  // namespace levada::kernels::cuda
