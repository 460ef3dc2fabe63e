// What: a row's parameters as the sampling kernel reads them, and the launch of it.
// Owner: none, plain data. Between sampling.cc, which packs, and sampling.cu, which chooses.
// Thread: any.
// Invariant: offsets are into the step's ids; a range of another row is never named. table: 2 * (history + 1) entries, all
// zero between launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/status.h"

namespace levada::kernels::cuda {

struct IdRange {
  std::int32_t first = 0, count = 0;
};

struct DeviceRow {
  std::uint64_t seed = 0;
  float temperature = 0, top_p = 1, min_p = 0, frequency = 0, presence = 0, repetition = 1;
  std::int32_t top_k = 0, position = 0, appended_row = -1;
  IdRange output, prompt, banned, bias_ids, bias_values, mask, table;  // bias_values: the bits of floats
};

struct CountedId {
  std::int32_t id_plus_1, count;
};

struct SamplingCall {
  float* logits;
  std::int64_t stride;
  std::int32_t vocabulary;
  const DeviceRow* rows;
  const std::int32_t* ids;
  const std::int32_t* input_ids;
  CountedId* table;
  std::int32_t* tokens;
};

Status launch_sampling(const SamplingCall& call, unsigned rows, cudaStream_t stream);

}  // namespace levada::kernels::cuda
