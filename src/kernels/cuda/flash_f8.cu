#include "kernels/cuda/flash_launch.cuh"

namespace levada::kernels::cuda {

Status launch_flash_f8(const FlashCall& call, cudaStream_t stream) {
  return launch_flash<__nv_bfloat16, __nv_fp8_e4m3>(call, stream);
}

}  // namespace levada::kernels::cuda
