// What: check_cuda(), an error of the CUDA runtime as a Status.
// Owner: none.
// Thread: any.
// Invariant: kInternal, "CUDA: DOING: what the runtime says".
// No format of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/status.h"

namespace levada::device {

inline Status check_cuda(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return {};
  return internal_error(std::string("CUDA: ") + doing + ": " + cudaGetErrorString(error));
}

}  // namespace levada::device
