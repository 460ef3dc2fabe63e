#include "kernels/cuda/flash_launch.cuh"

namespace levada::kernels::cuda {

Status launch_flash_bf16(const FlashCall& call, cudaStream_t stream) {
  return launch_flash<__nv_bfloat16>(call, stream);
}

}  // namespace levada::kernels::cuda
