#include "model/rough_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "kernels/ref/ref_quant.h"

namespace levada::model {
namespace {

constexpr std::int64_t kBlock = 32, kBlockBytes = 34;

void quantize_block(const float* x, std::byte* out) {
  float largest = 0;
  for (std::int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  const auto scale = static_cast<_Float16>(largest / 127);
  std::memcpy(out, &scale, sizeof scale);
  const auto step = static_cast<float>(scale);
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const float whole = step > 0 ? std::nearbyint(x[i] / step) : 0;
    out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::clamp(whole, -127.0f, 127.0f)));
  }
}

void widen_row(const at::Tensor& matrix, std::int64_t row, std::span<float> out) {
  const auto copy = [&](const auto* from) {
    from += row * matrix.stride(0);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = kernels::to_float(from[i]);
  };
  switch (matrix.scalar_type()) {
    case at::kBFloat16: return copy(static_cast<const kernels::Bf16*>(matrix.data_ptr()));
    case at::kHalf: return copy(static_cast<const kernels::F16*>(matrix.data_ptr()));
    default: std::memcpy(out.data(), matrix.data_ptr<float>() + row * matrix.stride(0), out.size_bytes());
  }
}

}  // namespace

nn::Matrix make_q8_0(std::int64_t rows, std::int64_t columns,
                     const std::function<void(std::int64_t, std::span<float>)>& row) {
  auto matrix = std::make_shared<kernels::QuantMatrix>(kernels::QuantFormat::kQ8_0, rows, columns);
  std::vector<float> numbers(static_cast<std::size_t>(columns));
  std::vector<std::byte> blocks(static_cast<std::size_t>(columns / kBlock * kBlockBytes));
  for (std::int64_t r = 0; r < rows; ++r) {
    row(r, numbers);
    for (std::int64_t b = 0; b < columns / kBlock; ++b) {
      quantize_block(numbers.data() + b * kBlock, blocks.data() + b * kBlockBytes);
    }
    matrix->set_row(r, blocks.data());
  }
  return std::shared_ptr<const kernels::QuantMatrix>(std::move(matrix));
}

nn::Matrix to_q8_0(const nn::Matrix& matrix) {
  if (const auto* tensor = std::get_if<at::Tensor>(&matrix)) {
    if (!fits_q8_0(tensor->size(1))) return matrix;
    return make_q8_0(tensor->size(0), tensor->size(1),
                     [&](std::int64_t r, std::span<float> out) { widen_row(*tensor, r, out); });
  }
  const auto& quant = *std::get<std::shared_ptr<const kernels::QuantMatrix>>(matrix);
  if (quant.format() == kernels::QuantFormat::kQ8_0) return matrix;
  std::vector<std::byte> blocks(static_cast<std::size_t>(quant.row_bytes()));
  return make_q8_0(quant.rows(), quant.columns(), [&](std::int64_t r, std::span<float> out) {
    quant.row(r, blocks.data());
    kernels::dequantize_row(quant.format(), blocks.data(), quant.columns(), out.data());
  });
}

}  // namespace levada::model
