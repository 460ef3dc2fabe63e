// What: read_all, the kernel that measures how fast this GPU's memory can be read: the limit that decode is held against.
// Owner: the caller's memory.
// Thread: any, one at a time per stream; asynchronous, capturable.
// Invariant: every byte is loaded exactly once, in 16-byte packs, and goes into the result, so that nothing is skipped.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

// result: i32 [1]: xor of data's 32-bit words with what it held. data: u8 [bytes], a multiple of 16, on 16 bytes.
Status read_all(const device::TensorView& data, const device::TensorView& result, cudaStream_t stream);

}  // namespace levada::kernels::cuda
