// What: gather_pages and scatter_pages, whole pages of every plane and layer of a KV pool from and into one contiguous
// buffer: one launch, where copies would be one per page, plane and layer.
// Owner: all memory is the caller's, on the stream's device; `packed` may be pinned host memory too.
// Thread: any, one at a time per stream. Asynchronous, capturable in a CUDA graph; nothing is allocated.
// Invariant: a page outside the pool is packed as zeros and never written; pages named twice by a scatter get either's
// bytes. Twins: kernels/ref/ref_pages.h.
// Format of packed pages: kernels/page_planes.h.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.h"
#include "kernels/page_planes.h"

namespace levada::kernels::cuda {

inline constexpr std::size_t kMaxPagePlanes = 8;

// `pages`: device i32 [count], read when the kernel runs. Addresses, page_bytes and layer_stride_bytes are multiples of 16.
Status gather_pages(std::span<const PagePlane> planes, const std::int32_t* pages, std::int32_t count, void* packed,
                    cudaStream_t stream);
Status scatter_pages(std::span<const PagePlane> planes, const std::int32_t* pages, std::int32_t count,
                     const void* packed, cudaStream_t stream);

}  // namespace levada::kernels::cuda
