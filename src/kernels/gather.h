// What: the copying kernels, the same for every CPU: embedding rows out of a table, KV rows into their pages.
// Owner: the caller's memory.
// Thread: one caller; the pool is used for many rows.
// Invariant: exact: float32 is copied, bfloat16 and float16 widened, bfloat16 rounded to nearest even. Arguments were checked by checks.h.
#pragma once

#include "kernels/ops.h"

namespace levada::kernels {

void embed_rows(ThreadPool& pool, const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out);
void write_kv_rows(ThreadPool& pool, const TensorView& k, const TensorView& v, const PagedBatch& batch,
                   const TensorView& k_plane, const TensorView& v_plane);

}  // namespace levada::kernels
