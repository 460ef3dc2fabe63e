// What: one launch of FlashInfer's paged prefill kernel, and the functions it is compiled in, one per types.
// Owner: none, plain data. Between flash_attention.cu, which plans, and flash_bf16.cu, flash_f16.cu and flash_f8.cu.
// Thread: any.
// Invariant: lists are on the device, laid out by FlashInfer's PrefillPlan of the same library.
#pragma once

#include <flashinfer/attention/scheduler.cuh>

#include "base/status.h"
#include "device/tensor_view.h"

namespace levada::kernels::cuda {

struct FlashCall {
  device::TensorView q, k_plane, v_plane, out;
  float scale, v_scale;  // of q . k; of what is attended
  flashinfer::PrefillPlanInfo plan;
  std::uint32_t requests;
  void* lists;    // FlashInfer's
  void* partial;  // FlashInfer's
  std::int32_t *row_first, *page_first, *last_tokens, *pages;
};

Status launch_flash_bf16(const FlashCall& call, cudaStream_t stream);
Status launch_flash_f16(const FlashCall& call, cudaStream_t stream);
// bfloat16 over planes of float8_e4m3.
Status launch_flash_f8(const FlashCall& call, cudaStream_t stream);

}  // namespace levada::kernels::cuda
