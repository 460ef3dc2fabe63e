#include "kernels/ref/ref_quant.h"

#include <bit>
#include <cstring>

namespace levada::kernels {
namespace {

int byte_at(const std::byte* p, std::int64_t i) { return std::to_integer<int>(p[i]); }
int signed_at(const std::byte* p, std::int64_t i) { return static_cast<std::int8_t>(std::to_integer<int>(p[i])); }

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

// Nibble e of 16 bytes whose low halves are elements 0 to 15.
int nibble(const std::byte* p, int e) { return e < 16 ? byte_at(p, e) & 15 : byte_at(p, e - 16) >> 4; }

float q4_k_element(const std::byte* b, int e) {
  const int g = e / 32;
  const std::byte* s = b + 4;
  const int scale = g < 4 ? byte_at(s, g) & 63 : (byte_at(s, g + 4) & 15) + (byte_at(s, g - 4) >> 6) * 16;
  const int minimum = g < 4 ? byte_at(s, g + 4) & 63 : (byte_at(s, g + 4) >> 4) + (byte_at(s, g) >> 6) * 16;
  const int pair = byte_at(b, 16 + g / 2 * 32 + e % 32);
  const int quant = g % 2 == 0 ? pair & 15 : pair >> 4;
  return half_at(b) * static_cast<float>(scale) * static_cast<float>(quant) -
         half_at(b + 2) * static_cast<float>(minimum);
}

float q6_k_element(const std::byte* b, int e) {
  const int half = e / 128, quarter = e % 128 / 32, i = e % 32;
  const int low_byte = byte_at(b, 64 * half + 32 * (quarter % 2) + i);
  const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
  const int high = (byte_at(b, 128 + 32 * half + i) >> (2 * quarter)) & 3;
  const int scale = signed_at(b, 192 + e / 16);
  return half_at(b + 208) * static_cast<float>(scale) * static_cast<float>(low + 16 * high - 32);
}

float element(QuantFormat format, const std::byte* b, int e) {
  switch (format) {
    case QuantFormat::kQ8_0: return half_at(b) * static_cast<float>(signed_at(b, 2 + e));
    case QuantFormat::kQ4_0: return half_at(b) * static_cast<float>(nibble(b + 2, e) - 8);
    case QuantFormat::kQ4_1: return half_at(b) * static_cast<float>(nibble(b + 4, e)) + half_at(b + 2);
    case QuantFormat::kQ4_K: return q4_k_element(b, e);
    case QuantFormat::kQ6_K: return q6_k_element(b, e);
  }
  return 0;
}

}  // namespace

void dequantize_row(QuantFormat format, const std::byte* blocks, std::int64_t k, float* out) {
  const std::int64_t elements = block_elements(format);
  for (std::int64_t i = 0; i < k; ++i) {
    out[i] = element(format, blocks + i / elements * block_bytes(format), static_cast<int>(i % elements));
  }
}

}  // namespace levada::kernels
