// What: the shape contracts of Ops, checked at the entry of every table. A breach ends the process with the argument's
// name.
// Owner: none.
// Thread: any.
// Invariant: after a check the kernel may index without looking again. Outside numbers (token ids, lengths) were
// checked at the border (law 11); what fails here is our own mistake.
#pragma once

#include <span>

#include "kernels/ops.h"

namespace levada::kernels {

void check_linear(const TensorView& x, const TensorView& w, const TensorView& out);
void check_linear(const TensorView& x, const QuantMatrix& w, const TensorView& out);
void check_rms_norm(const TensorView& x, const TensorView& w, const TensorView& out);
void check_rms_norm_heads(const TensorView& x, const TensorView& w);
void check_rope(const TensorView& x, const TensorView& cos_sin, std::span<const std::int32_t> positions);
void check_silu_mul(const TensorView& gate_up, const TensorView& out);
void check_embed(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out);
void check_embed(const QuantMatrix& table, std::span<const std::int32_t> ids, const TensorView& out);
void check_write_kv(const TensorView& k, const TensorView& v, const PagedBatch& batch, const TensorView& k_plane,
                    const TensorView& v_plane);
void check_paged_attention(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                           const TensorView& v_plane, const TensorView& out);

}  // namespace levada::kernels
