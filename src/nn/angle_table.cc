#include "nn/angle_table.h"

#include <cmath>
#include <vector>

#include "nn/upload.h"

namespace levada::nn {

at::Tensor angle_table(std::int64_t count, std::int64_t head_dim, double theta, at::Device place) {
  const std::int64_t half = head_dim / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(half));
  for (std::int64_t i = 0; i < half; ++i) {
    const float exponent = -static_cast<float>(2 * i) / static_cast<float>(head_dim);
    frequencies[static_cast<std::size_t>(i)] = static_cast<float>(std::pow(theta, exponent));
  }
  std::vector<float> table(static_cast<std::size_t>(count * head_dim));
  float* out = table.data();
  for (std::int64_t position = 0; position < count; ++position) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)];
      out[i] = std::cos(angle);
      out[half + i] = std::sin(angle);
    }
    out += head_dim;
  }
  return upload<float>(table, place).view({count, head_dim});
}

}  // namespace levada::nn
