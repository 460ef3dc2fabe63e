// What: the launch of FlashInfer's FA2 paged prefill kernel for a type T over KV of T or float8, every head_dim and tile that is compiled.
// Owner: none. Included by flash_bf16.cu, flash_f16.cu and flash_f8.cu, so that they compile side by side.
// Thread: any.
// Invariant: tiles are those that PrefillPlan chooses for head_dim 64 and 128.
#pragma once

#include <exception>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>
#include <string>

#include "kernels/cuda/flash_call.h"
#include "kernels/cuda/launch.h"

namespace levada::kernels::cuda {

// FlashInfer's variants multiply what they give by a member of this name.
template <class T, class Kv>
struct FlashParams : flashinfer::BatchPrefillPagedParams<T, Kv, T, std::int32_t> {
  float v_scale = 1;
};

template <class T, class Kv>
FlashParams<T, Kv> flash_params(const FlashCall& call) {
  const auto list = [&]<class Item>(Item*, std::int64_t offset) {
    return flashinfer::GetPtrFromBaseOffset<Item>(call.lists, offset);
  };
  std::int32_t* const ints = nullptr;
  const auto dim = [](const TensorView& view, int d) {
    return static_cast<std::uint32_t>(view.shape[static_cast<std::size_t>(d)]);
  };
  FlashParams<T, Kv> params;
  params.q = call.q.template as<T>();
  params.o = call.out.template as<T>();
  params.paged_kv = flashinfer::paged_kv_t<Kv, std::int32_t>(
      dim(call.k_plane, 2), dim(call.k_plane, 1), dim(call.k_plane, 3), call.requests, flashinfer::QKVLayout::kNHD,
      call.k_plane.template as<Kv>(), call.v_plane.template as<Kv>(), call.pages, call.page_first, call.last_tokens);
  params.q_indptr = call.row_first;
  params.num_qo_heads = dim(call.q, 1);
  params.group_size = flashinfer::uint_fastdiv(dim(call.q, 1) / dim(call.k_plane, 2));
  params.q_stride_n = static_cast<std::int32_t>(call.q.strides[0]);
  params.q_stride_h = static_cast<std::int32_t>(call.q.strides[1]);
  params.window_left = -1;
  params.sm_scale = call.scale;
  params.v_scale = call.v_scale;
  params.rope_rcp_scale = params.rope_rcp_theta = 1.0f;
  params.request_indices = list(ints, call.plan.request_indices_offset);
  params.qo_tile_indices = list(ints, call.plan.qo_tile_indices_offset);
  params.kv_tile_indices = list(ints, call.plan.kv_tile_indices_offset);
  params.o_indptr = list(ints, call.plan.o_indptr_offset);
  params.kv_chunk_size_ptr = list(ints, call.plan.kv_chunk_size_ptr_offset);
  if (call.plan.split_kv) params.merge_indptr = list(ints, call.plan.merge_indptr_offset);
  if (call.plan.enable_cuda_graph) {
    params.block_valid_mask = list(static_cast<bool*>(nullptr), call.plan.block_valid_mask_offset);
    params.total_num_rows = list(static_cast<std::uint32_t*>(nullptr), call.plan.total_num_rows_offset);
  }
  params.padded_batch_size = static_cast<std::uint32_t>(call.plan.padded_batch_size);
  params.max_total_num_rows = static_cast<std::uint32_t>(call.plan.total_num_rows);
  return params;
}

template <class T, class Kv, int D, int kTile>
cudaError_t launch_flash_tile(const FlashCall& call, cudaStream_t stream) {
  using Variant = flashinfer::DefaultAttention</*custom_mask=*/false, /*window=*/false, /*soft_cap=*/false,
                                               /*alibi=*/false>;
  T* partial = nullptr;
  float* sums = nullptr;
  if (call.plan.split_kv) {
    partial = flashinfer::GetPtrFromBaseOffset<T>(call.partial, call.plan.v_offset);
    sums = flashinfer::GetPtrFromBaseOffset<float>(call.partial, call.plan.s_offset);
  }
  return flashinfer::BatchPrefillWithPagedKVCacheDispatched<
      /*SAME_KV_STRIDES=*/true, kTile, D, D, flashinfer::PosEncodingMode::kNone, /*USE_FP16_QK_REDUCTION=*/false,
      flashinfer::MaskMode::kCausal, /*USE_TOKEN_HEAD_SF=*/false, Variant, FlashParams<T, Kv>>(
      flash_params<T, Kv>(call), partial, sums, /*enable_pdl=*/true, stream);
}

template <class T, class Kv, int D>
cudaError_t launch_flash_dim(const FlashCall& call, cudaStream_t stream) {
  switch (call.plan.cta_tile_q) {
    case 16: return launch_flash_tile<T, Kv, D, 16>(call, stream);
    case 64: return launch_flash_tile<T, Kv, D, 64>(call, stream);
    default: return launch_flash_tile<T, Kv, D, 128>(call, stream);
  }
}

template <class T, class Kv = T>
Status launch_flash(const FlashCall& call, cudaStream_t stream) {
  try {
    return check_cuda(
        call.q.shape[2] == 64 ? launch_flash_dim<T, Kv, 64>(call, stream) : launch_flash_dim<T, Kv, 128>(call, stream),
        "flash attention");
  } catch (const std::exception& error) {
    return internal_error(std::string("flash attention: ") + error.what());
  }
}

}  // namespace levada::kernels::cuda
