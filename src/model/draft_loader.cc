#include "model/draft_loader.h"

#include <ATen/ops/empty.h>

#include "model/rough_matrix.h"
#include "nn/tensor.h"

namespace levada::model {

nn::Projection DraftLoader::matrix(Parts parts, std::int64_t columns, std::int64_t layer) {
  const bool quantised = rough_ && fits_q8_0(columns);
  const at::Tensor whole = joined(parts, {columns}, rough_ && !quantised ? DType::kBF16 : DType::kF32, layer);
  const nn::Matrix matrix = quantised ? to_q8_0(whole) : nn::Matrix(whole);
  const auto* const blocks = std::get_if<std::shared_ptr<const kernels::QuantMatrix>>(&matrix);
  bytes_ += blocks != nullptr ? (*blocks)->bytes() : static_cast<std::int64_t>(whole.nbytes());
  return {{matrix}};
}

at::Tensor DraftLoader::vector(Parts parts, std::int64_t layer) {
  const at::Tensor whole = joined(parts, {}, DType::kF32, layer);
  bytes_ += static_cast<std::int64_t>(whole.nbytes());
  return whole;
}

at::Tensor DraftLoader::cos_sin(std::int64_t positions) {
  const at::Tensor table = at::empty({positions, source_.config().head_dim}, at::TensorOptions().dtype(at::kFloat));
  source_.fill_cos_sin(positions, table.data_ptr<float>());
  bytes_ += static_cast<std::int64_t>(table.nbytes());
  return table;
}

at::Tensor DraftLoader::joined(Parts parts, std::vector<std::int64_t> row, DType type, std::int64_t layer) {
  std::vector<std::int64_t> sizes{0};
  for (const auto& [weight, rows] : parts) sizes[0] += rows;
  sizes.insert(sizes.end(), row.begin(), row.end());
  const at::Tensor whole = at::empty(sizes, at::TensorOptions().dtype(nn::scalar_type(type)));
  std::int64_t first = 0;
  for (const auto& [weight, rows] : parts) {
    source_.read(weight, layer, 0, rows, type, whole.narrow(0, first, rows).data_ptr());
    first += rows;
  }
  return whole;
}

}  // namespace levada::model
