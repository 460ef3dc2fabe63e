// What: the two limits of this GPU that engine benches are held against, measured, not read off a data sheet.
// Owner: none; memory is taken for the measurement and given back.
// Thread: any; nothing else should run on the GPU meanwhile.
// Invariant: only plain structs cross the border between module and binary.
#pragma once

#include "base/status.h"

namespace levada::kernels::cuda {

struct GpuLimits {
  double read_bytes_per_s = 0;  // every byte of several GiB read once
  double flops_per_s = 0;       // bf16 product of two 8192 x 8192 matrices of random numbers
};

inline constexpr const char* kMeasureGpuLimits = "levada_measure_gpu_limits";
// Writes the limits of the current device, or why there are none, into `result`.
using MeasureGpuLimits = void(Result<GpuLimits>* result);

}  // namespace levada::kernels::cuda
