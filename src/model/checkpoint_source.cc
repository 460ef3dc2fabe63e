#include "model/checkpoint_source.h"

#include <cstring>
#include <vector>

#include "kernels/bf16.h"
#include "model/rope.h"

namespace levada::model {
namespace {

// The row of the file that belongs in row `row` of the model: GGUF llama interleaves each head's halves of q and k.
std::int64_t file_row(const ModelConfig& config, Weight weight, std::int64_t row) {
  if (!config.paired_rows || (weight != Weight::kQ && weight != Weight::kK)) return row;
  const std::int64_t d = config.head_dim, head = row / d, within = row % d;
  return head * d + within % (d / 2) * 2 + within / (d / 2);
}

// Multiplies a row of numbers by the scales of its blocks.
void apply_scales(const files::TensorInfo& scales, std::int64_t row, std::vector<float>& numbers) {
  std::vector<float> factors(static_cast<std::size_t>(scales.shape[1]));
  files::decode_to_f32(scales, row / kScaleBlock * scales.shape[1], scales.shape[1], factors.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] *= factors[i / kScaleBlock];
}

}  // namespace

void narrow(std::span<const float> from, DType dtype, void* to) {
  switch (dtype) {
    case DType::kBF16: {
      auto* out = static_cast<kernels::Bf16*>(to);
      for (std::size_t i = 0; i < from.size(); ++i) out[i] = kernels::to_bf16(from[i]);
      return;
    }
    case DType::kF16: {
      auto* out = static_cast<_Float16*>(to);
      for (std::size_t i = 0; i < from.size(); ++i) out[i] = static_cast<_Float16>(from[i]);
      return;
    }
    default: std::memcpy(to, from.data(), from.size() * sizeof(float));
  }
}

void read_rows(const Checkpoint& checkpoint, Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count,
               DType dtype, kernels::ThreadPool& pool, void* out) {
  const files::TensorInfo& info = checkpoint.tensor(weight, layer);
  const files::TensorInfo* const scales = checkpoint.block_scales(weight, layer);
  const bool is_matrix = info.shape.size() == 2;
  const std::int64_t width = is_matrix ? info.shape[1] : 1;
  const auto row_bytes = static_cast<std::size_t>(width) * bytes_of(dtype);
  LEVADA_CHECK(first >= 0 && count >= 0 && first + count <= info.shape[0], "rows of this weight");
  pool.parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(width));
    for (std::int64_t r = begin; r < end; ++r) {
      files::decode_to_f32(info, file_row(checkpoint.config(), weight, first + r) * width, width, row.data());
      if (scales != nullptr) apply_scales(*scales, first + r, row);
      narrow(row, dtype, static_cast<std::byte*>(out) + static_cast<std::size_t>(r) * row_bytes);
    }
  });
  if (first + count == info.shape[0]) checkpoint.source().drop_resident(info);
}

void copy_stored_rows(const Checkpoint& checkpoint, Weight weight, std::int64_t layer, std::int64_t first_row,
                      kernels::ThreadPool& pool, kernels::QuantMatrix& out) {
  const files::TensorInfo& info = checkpoint.tensor(weight, layer);
  const std::int64_t rows = info.shape[0], row_bytes = out.row_bytes();
  LEVADA_CHECK(info.shape[1] == out.columns() && rows * row_bytes == static_cast<std::int64_t>(info.bytes.size()),
               "a weight of the matrix's form and width");
  pool.parallel_for(rows, kernels::QuantMatrix::kPanelRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      out.set_row(first_row + r, info.bytes.data() + file_row(checkpoint.config(), weight, r) * row_bytes);
    }
  });
  checkpoint.source().drop_resident(info);
}

void CheckpointSource::read(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, DType dtype,
                            void* out) {
  read_rows(checkpoint_, weight, layer, first, count, dtype, pool_, out);
}

bool CheckpointSource::is_f8(Weight weight, std::int64_t layer) const {
  return checkpoint_.block_scales(weight, layer) != nullptr;
}

void CheckpointSource::read_f8(Weight weight, std::int64_t layer, std::int64_t first, std::int64_t count, void* out) {
  const files::TensorInfo& info = checkpoint_.tensor(weight, layer);
  LEVADA_CHECK(is_f8(weight, layer) && first >= 0 && count >= 0 && first + count <= info.shape[0], "rows of f8");
  const auto width = static_cast<std::size_t>(info.shape[1]);
  std::memcpy(out, info.bytes.data() + static_cast<std::size_t>(first) * width,
              static_cast<std::size_t>(count) * width);
  if (first + count == info.shape[0]) checkpoint_.source().drop_resident(info);
}

std::vector<float> CheckpointSource::scales(Weight weight, std::int64_t layer) {
  const files::TensorInfo* const info = checkpoint_.block_scales(weight, layer);
  LEVADA_CHECK(info != nullptr, "scales of an f8 weight");
  std::vector<float> all(static_cast<std::size_t>(info->elements()));
  files::decode_to_f32(*info, 0, info->elements(), all.data());
  return all;
}

void CheckpointSource::fill_cos_sin(float* out) {
  model::fill_cos_sin(config().rope, config().head_dim, info_.context_length_tokens, out);
}

}  // namespace levada::model
