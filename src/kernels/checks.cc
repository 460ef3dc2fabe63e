#include "kernels/checks.h"

namespace levada::kernels {
namespace {

bool is_cache_type(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }
bool is_weight_type(DType dtype) { return is_cache_type(dtype) || dtype == DType::kF16; }

bool is_rows(const TensorView& view, int rank) {
  return view.rank == rank && view.dtype == DType::kF32 && view.place == device::DeviceKind::kCpu &&
         (view.strides[static_cast<std::size_t>(rank) - 1] == 1 || view.shape[static_cast<std::size_t>(rank) - 1] <= 1);
}

bool is_plane(const TensorView& plane) {
  if (plane.rank != 4 || !is_cache_type(plane.dtype) || plane.place != device::DeviceKind::kCpu) return false;
  const auto fits = [&](std::size_t d, std::int64_t stride) {
    return plane.shape[d] <= 1 || plane.strides[d] == stride;
  };
  const std::int64_t token = plane.strides[1];
  return fits(3, 1) && fits(2, plane.shape[3]) && token >= plane.shape[2] * plane.shape[3] &&
         fits(0, plane.shape[1] * token);
}

void check_planes(const TensorView& k_plane, const TensorView& v_plane) {
  LEVADA_CHECK(is_plane(k_plane), "k_plane: f32 or bf16 [pages, page_size, kv_heads, d], tokens evenly apart");
  LEVADA_CHECK(is_plane(v_plane), "v_plane: f32 or bf16 [pages, page_size, kv_heads, d], tokens evenly apart");
  LEVADA_CHECK(k_plane.dtype == v_plane.dtype && k_plane.shape == v_plane.shape && k_plane.strides == v_plane.strides,
               "k_plane and v_plane are alike");
}

// Every row, block table entry and page that the batch names exists.
void check_batch(const PagedBatch& batch, std::int64_t rows, const TensorView& plane) {
  const std::size_t slices = batch.rows.size();
  LEVADA_CHECK(
      batch.first_row.size() == slices && batch.context.size() == slices && batch.block_table_first.size() == slices,
      "batch: one entry per slice in each array");
  LEVADA_CHECK(batch.first_key.empty() || batch.first_key.size() == slices, "batch.first_key: none or one per slice");
  LEVADA_CHECK(batch.page_size >= 1 && batch.page_size == plane.shape[1], "batch.page_size is the planes'");
  for (std::size_t s = 0; s < slices; ++s) {
    LEVADA_CHECK(batch.first_row[s] >= 0 && batch.rows[s] >= 0 && batch.first_row[s] + batch.rows[s] <= rows,
                 "batch: slice rows lie in the tensor");
    LEVADA_CHECK(batch.context[s] >= 0, "batch.context");
    LEVADA_CHECK(batch.first_key.empty() || (batch.first_key[s] >= 0 && batch.first_key[s] <= batch.context[s]),
                 "batch.first_key: every row sees itself");
    if (batch.rows[s] == 0) continue;
    const std::int64_t tokens = std::int64_t{batch.context[s]} + batch.rows[s];
    const std::int64_t pages = (tokens + batch.page_size - 1) / batch.page_size;
    const std::int64_t first = batch.block_table_first[s];
    LEVADA_CHECK(first >= 0 && first + pages <= static_cast<std::int64_t>(batch.block_tables.size()),
                 "batch: block table covers the slice");
    for (std::int64_t p = first; p < first + pages; ++p) {
      const std::int32_t page = batch.block_tables[static_cast<std::size_t>(p)];
      LEVADA_CHECK(page >= 0 && page < plane.shape[0], "batch.block_tables: page exists");
    }
  }
}

}  // namespace

void check_linear(const TensorView& x, const TensorView& w, const TensorView& out) {
  LEVADA_CHECK(is_rows(x, 2), "x: f32 [R, K]");
  LEVADA_CHECK(w.rank == 2 && is_weight_type(w.dtype) && (w.strides[1] == 1 || w.shape[1] <= 1),
               "w: f32, bf16 or f16 [N, K]");
  LEVADA_CHECK(is_rows(out, 2), "out: f32 [R, N]");
  LEVADA_CHECK(w.shape[1] == x.shape[1], "w and x agree on K");
  LEVADA_CHECK(out.shape[0] == x.shape[0] && out.shape[1] == w.shape[0], "out is [R, N]");
}

void check_linear(const TensorView& x, const QuantMatrix& w, const TensorView& out) {
  LEVADA_CHECK(is_rows(x, 2) && x.shape[1] == w.columns(), "x: f32 [R, K] of w's K");
  LEVADA_CHECK(is_rows(out, 2), "out: f32 [R, N]");
  LEVADA_CHECK(out.shape[0] == x.shape[0] && out.shape[1] == w.rows(), "out is [R, N]");
}

void check_rms_norm(const TensorView& x, const TensorView& w, const TensorView& out) {
  LEVADA_CHECK(is_rows(x, 2), "x: f32 [R, H]");
  LEVADA_CHECK(is_rows(w, 1) && w.shape[0] == x.shape[1], "w: f32 [H]");
  LEVADA_CHECK(is_rows(out, 2) && out.shape == x.shape, "out: f32 [R, H]");
}

void check_rms_norm_heads(const TensorView& x, const TensorView& w) {
  LEVADA_CHECK(is_rows(x, 3), "x: f32 [R, heads, d]");
  LEVADA_CHECK(is_rows(w, 1) && w.shape[0] == x.shape[2], "w: f32 [d]");
}

void check_rope(const TensorView& x, const TensorView& cos_sin, std::span<const std::int32_t> positions) {
  LEVADA_CHECK(is_rows(x, 3) && x.shape[2] % 2 == 0, "x: f32 [R, heads, d], d even");
  LEVADA_CHECK(is_rows(cos_sin, 2) && cos_sin.shape[1] == x.shape[2], "cos_sin: f32 [max_positions, d]");
  LEVADA_CHECK(static_cast<std::int64_t>(positions.size()) == x.shape[0], "positions: one per row");
  for (const std::int32_t position : positions) {
    LEVADA_CHECK(position >= 0 && position < cos_sin.shape[0], "positions lie in cos_sin");
  }
}

void check_silu_mul(const TensorView& gate_up, const TensorView& out) {
  LEVADA_CHECK(is_rows(gate_up, 2) && is_rows(out, 2), "gate_up: f32 [R, 2I]; out: f32 [R, I]");
  LEVADA_CHECK(gate_up.shape[0] == out.shape[0] && gate_up.shape[1] == 2 * out.shape[1], "gate_up is twice out");
}

void check_embed(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out) {
  LEVADA_CHECK(table.rank == 2 && is_weight_type(table.dtype) && (table.strides[1] == 1 || table.shape[1] <= 1),
               "table: f32, bf16 or f16 [V, H]");
  LEVADA_CHECK(is_rows(out, 2) && out.shape[1] == table.shape[1], "out: f32 [R, H]");
  LEVADA_CHECK(static_cast<std::int64_t>(ids.size()) == out.shape[0], "ids: one per row");
  for (const std::int32_t id : ids) LEVADA_CHECK(id >= 0 && id < table.shape[0], "ids lie in the vocabulary");
}

void check_embed(const QuantMatrix& table, std::span<const std::int32_t> ids, const TensorView& out) {
  LEVADA_CHECK(is_rows(out, 2) && out.shape[1] == table.columns(), "out: f32 [R, H]");
  LEVADA_CHECK(static_cast<std::int64_t>(ids.size()) == out.shape[0], "ids: one per row");
  for (const std::int32_t id : ids) LEVADA_CHECK(id >= 0 && id < table.rows(), "ids lie in the vocabulary");
}

void check_write_kv(const TensorView& k, const TensorView& v, const PagedBatch& batch, const TensorView& k_plane,
                    const TensorView& v_plane) {
  check_planes(k_plane, v_plane);
  LEVADA_CHECK(is_rows(k, 3) && is_rows(v, 3) && k.shape == v.shape, "k, v: f32 [R, kv_heads, d]");
  LEVADA_CHECK(k.shape[1] == k_plane.shape[2] && k.shape[2] == k_plane.shape[3], "k and k_plane agree on heads and d");
  check_batch(batch, k.shape[0], k_plane);
}

void check_paged_attention(const TensorView& q, const PagedBatch& batch, const TensorView& k_plane,
                           const TensorView& v_plane, const TensorView& out) {
  check_planes(k_plane, v_plane);
  LEVADA_CHECK(is_rows(q, 3) && is_rows(out, 3) && q.shape == out.shape, "q, out: f32 [R, heads, d]");
  LEVADA_CHECK(q.shape[2] == k_plane.shape[3] && k_plane.shape[2] >= 1 && q.shape[1] % k_plane.shape[2] == 0,
               "q and the planes agree on d; heads is a multiple of kv_heads");
  check_batch(batch, q.shape[0], k_plane);
}

}  // namespace levada::kernels
