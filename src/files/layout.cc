#include "files/layout.h"

#include <bit>

namespace levada::files {

// Every format here is little endian and read by plain copies.
static_assert(std::endian::native == std::endian::little);

std::string_view to_string(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32: return "F32";
    case Encoding::kF16: return "F16";
    case Encoding::kBF16: return "BF16";
    case Encoding::kQ8_0: return "Q8_0";
    case Encoding::kQ4_0: return "Q4_0";
    case Encoding::kQ4_1: return "Q4_1";
    case Encoding::kQ4_K: return "Q4_K";
    case Encoding::kQ6_K: return "Q6_K";
    case Encoding::kI64: return "I64";
    case Encoding::kI32: return "I32";
    case Encoding::kU8: return "U8";
    case Encoding::kF8E4M3: return "F8_E4M3";
  }
  return "?";
}

std::int64_t block_elements(Encoding encoding) {
  switch (encoding) {
    case Encoding::kQ8_0:
    case Encoding::kQ4_0:
    case Encoding::kQ4_1: return 32;
    case Encoding::kQ4_K:
    case Encoding::kQ6_K: return 256;
    default: return 1;
  }
}

std::int64_t block_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
    case Encoding::kI32: return 4;
    case Encoding::kF16:
    case Encoding::kBF16: return 2;
    case Encoding::kQ8_0: return 34;
    case Encoding::kQ4_0: return 18;
    case Encoding::kQ4_1: return 20;
    case Encoding::kQ4_K: return 144;
    case Encoding::kQ6_K: return 210;
    case Encoding::kI64: return 8;
    case Encoding::kU8:
    case Encoding::kF8E4M3: return 1;
  }
  return 0;
}

std::int64_t TensorInfo::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dimension : shape) product *= dimension;
  return product;
}

Result<std::int64_t> expected_bytes(Encoding encoding, std::span<const std::int64_t> shape, const std::string& where) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return data_loss(where + ": dimension " + std::to_string(dimension) + " is negative");
    if (__builtin_mul_overflow(elements, dimension, &elements))
      return data_loss(where + ": shape " + to_string(shape) + " has more than 2^63 elements");
  }
  const std::int64_t block = block_elements(encoding);
  const std::int64_t row = shape.empty() ? 1 : shape.back();
  if (row % block != 0)
    return data_loss(where + ": last dimension " + std::to_string(row) + " is no multiple of " +
                     std::string(to_string(encoding)) + "'s block of " + std::to_string(block));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / block, block_bytes(encoding), &bytes))
    return data_loss(where + ": shape " + to_string(shape) + " takes more than 2^63 bytes");
  return bytes;
}

}  // namespace levada::files
