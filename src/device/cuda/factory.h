// What: the one symbol of liblevada_cuda.so, through which the main binary reaches CUDA.
// Owner: the module stays loaded for the life of the process.
// Thread: any.
// Invariant: module and binary come from the same build; only abstract classes of device.h cross the border.
#pragma once

#include "device/device.h"

namespace levada::device {

inline constexpr const char* kOpenCudaDevice = "levada_open_cuda_device";
// Writes a Device or the reason (no driver, no such index) into `result`.
using OpenCudaDevice = void(int index, Result<std::unique_ptr<Device>>* result);

}  // namespace levada::device
