#include "kernels/gather.h"

#include <cstring>

#include "kernels/bf16.h"
#include "kernels/f16.h"

namespace levada::kernels {
namespace {

constexpr std::int64_t kRowsPerTask = 64;

void copy_values(const float* from, std::int64_t count, float* to) {
  if (count > 0) std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
void copy_values(const float* from, std::int64_t count, Bf16* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_bf16(from[i]);
}
template <class T>
void copy_values(const T* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

template <class T>
void embed_as(const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out, std::int64_t begin,
              std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    copy_values(table.as<const T>() + ids[static_cast<std::size_t>(row)] * table.strides[0], table.shape[1],
                out.as<float>() + row * out.strides[0]);
  }
}

// Row i of slice s goes to its slot in the plane.
template <class T>
void write_row(const TensorView& from, const PagedBatch& batch, std::size_t s, std::int64_t i,
               const TensorView& plane) {
  const std::int64_t position = batch.context[s] + i;
  const std::int64_t entry = batch.block_table_first[s] + position / batch.page_size;
  const std::int64_t page = batch.block_tables[static_cast<std::size_t>(entry)];
  T* to = plane.as<T>() + page * plane.strides[0] + position % batch.page_size * plane.strides[1];
  const float* row = from.as<const float>() + (batch.first_row[s] + i) * from.strides[0];
  for (std::int64_t head = 0; head < from.shape[1]; ++head) {
    copy_values(row + head * from.strides[1], from.shape[2], to + head * plane.strides[2]);
  }
}

template <class T>
void write_plane_rows(const TensorView& k, const TensorView& v, const PagedBatch& batch, std::size_t s,
                      std::int64_t begin, std::int64_t end, const TensorView& k_plane, const TensorView& v_plane) {
  for (std::int64_t i = begin; i < end; ++i) {
    write_row<T>(k, batch, s, i, k_plane);
    write_row<T>(v, batch, s, i, v_plane);
  }
}

}  // namespace

void embed_rows(ThreadPool& pool, const TensorView& table, std::span<const std::int32_t> ids, const TensorView& out) {
  pool.parallel_for(out.shape[0], kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    if (table.dtype == DType::kBF16) {
      embed_as<Bf16>(table, ids, out, begin, end);
    } else if (table.dtype == DType::kF16) {
      embed_as<F16>(table, ids, out, begin, end);
    } else {
      embed_as<float>(table, ids, out, begin, end);
    }
  });
}

void write_kv_rows(ThreadPool& pool, const TensorView& k, const TensorView& v, const PagedBatch& batch,
                   const TensorView& k_plane, const TensorView& v_plane) {
  for (std::size_t s = 0; s < batch.rows.size(); ++s) {
    pool.parallel_for(batch.rows[s], kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
      if (k_plane.dtype == DType::kBF16) {
        write_plane_rows<Bf16>(k, v, batch, s, begin, end, k_plane, v_plane);
      } else {
        write_plane_rows<float>(k, v, batch, s, begin, end, k_plane, v_plane);
      }
    });
  }
}

}  // namespace levada::kernels
