#include "kernels/cuda/flash_launch.cuh"

namespace levada::kernels::cuda {

Status launch_flash_f16(const FlashCall& call, cudaStream_t stream) { return launch_flash<__half>(call, stream); }

}  // namespace levada::kernels::cuda
