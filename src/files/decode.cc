// Block layouts: docs/formats/gguf.md. Products are formed in ggml's order, so results equal its own bit for bit where
// the compiler doesn't fuse them.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "files/tensor_source.h"

namespace levada::files {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  const std::uint32_t infinite = 0x7f800000u | mantissa << 13;
  const std::uint32_t normal = (exponent + 112) << 23 | mantissa << 13;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(mantissa)) * 0x1p-24f);
  const std::uint32_t magnitude = exponent == 0 ? subnormal : exponent == 31 ? infinite : normal;
  return std::bit_cast<float>(sign | magnitude);
}

float load_half(const std::byte* from) { return half_to_float(load<std::uint16_t>(from)); }

// OCP FP8 E4M3: bias 7, no infinities, all-ones is NaN.
float e4m3_to_float(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

void decode_e4m3(const std::byte* in, std::int64_t count, float* out) {
  static const auto table = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = e4m3_to_float(static_cast<std::uint8_t>(i));
    return values;
  }();
  for (std::int64_t i = 0; i < count; ++i) out[i] = table[std::to_integer<std::size_t>(in[i])];
}

void decode_f16(const std::byte* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = load_half(in + 2 * i);
}

void decode_bf16(const std::byte* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(in + 2 * i)) << 16);
}

template <class T>
void decode_integers(const std::byte* in, std::int64_t count, float* out) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(load<T>(in + kSize * i));
}

// The block decoders read one block at `in` and write its elements to `out`.

void decode_q8_0(const std::byte* in, float* out) {
  const float scale = load_half(in);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(load<std::int8_t>(in + 2 + i));
}

void decode_q4_0(const std::byte* in, float* out) {
  const float scale = load_half(in);
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(in[2 + i]);
    out[i] = scale * static_cast<float>((pair & 15) - 8);
    out[i + 16] = scale * static_cast<float>((pair >> 4) - 8);
  }
}

void decode_q4_1(const std::byte* in, float* out) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  for (int i = 0; i < 16; ++i) {
    const int pair = std::to_integer<int>(in[4 + i]);
    out[i] = scale * static_cast<float>(pair & 15) + minimum;
    out[i + 16] = scale * static_cast<float>(pair >> 4) + minimum;
  }
}

struct ScaleAndMin {
  int scale;
  int minimum;
};

// Twelve bytes hold eight 6-bit scales and eight 6-bit minima: groups 0-3 plainly in bytes 0-3 and 4-7, the low four
// bits of groups 4-7 in bytes 8-11 and their high two bits on top of the former.
ScaleAndMin q4_k_scales(const std::byte* packed, int group) {
  const auto byte = [&](int i) { return std::to_integer<int>(packed[i]); };
  if (group < 4) return {byte(group) & 63, byte(group + 4) & 63};
  return {(byte(group + 4) & 15) | (byte(group - 4) >> 6) << 4, (byte(group + 4) >> 4) | (byte(group) >> 6) << 4};
}

void decode_q4_k(const std::byte* in, float* out) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndMin factors = q4_k_scales(in + 4, group);
    const float group_scale = scale * static_cast<float>(factors.scale);
    const float group_minimum = minimum * static_cast<float>(factors.minimum);
    const std::byte* pairs = in + 16 + group / 2 * 32;  // two groups share 32 bytes: low nibbles, then high ones
    const int shift = group % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int quant = (std::to_integer<int>(pairs[i]) >> shift) & 15;
      out[group * 32 + i] = group_scale * static_cast<float>(quant) - group_minimum;
    }
  }
}

void decode_q6_k(const std::byte* in, float* out) {
  const std::byte* low = in;           // 128 bytes: low four bits
  const std::byte* high = in + 128;    // 64 bytes: high two bits, four elements a byte
  const std::byte* scales = in + 192;  // 16 signed scales, one per 16 elements
  const float scale = load_half(in + 208);
  for (int group = 0; group < 8; ++group) {
    const int half = group / 4;  // 128 elements take 64 low bytes and 32 high bytes
    const int quarter =
        group % 4;  // within a half: groups 0, 1 are low nibbles of its two 32-byte runs, 2, 3 the high ones
    const std::byte* nibbles = low + half * 64 + quarter % 2 * 32;
    const int nibble_shift = quarter / 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int four_bits = (std::to_integer<int>(nibbles[i]) >> nibble_shift) & 15;
      const int two_bits = (std::to_integer<int>(high[half * 32 + i]) >> (quarter * 2)) & 3;
      const float factor = scale * static_cast<float>(load<std::int8_t>(scales + group * 2 + i / 16));
      out[group * 32 + i] = factor * static_cast<float>((four_bits | two_bits << 4) - 32);
    }
  }
}

template <auto kDecodeBlock>
void decode_blocks(Encoding encoding, const std::byte* in, std::int64_t count, float* out) {
  const std::int64_t elements = block_elements(encoding);
  const std::int64_t bytes = block_bytes(encoding);
  for (std::int64_t block = 0; block < count / elements; ++block)
    kDecodeBlock(in + block * bytes, out + block * elements);
}

}  // namespace

void decode_to_f32(const TensorInfo& tensor, std::int64_t first, std::int64_t count, float* out) {
  const std::int64_t block = block_elements(tensor.encoding);
  const std::int64_t elements = tensor.elements();
  LEVADA_CHECK(first >= 0 && count >= 0 && first <= elements && count <= elements - first,
               "decode_to_f32 outside the tensor");
  LEVADA_CHECK(first % block == 0 && count % block == 0, "decode_to_f32 of part of a block");
  if (count == 0) return;
  const std::byte* in = tensor.bytes.data() + first / block * block_bytes(tensor.encoding);
  switch (tensor.encoding) {
    case Encoding::kF32: std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float)); return;
    case Encoding::kF16: return decode_f16(in, count, out);
    case Encoding::kBF16: return decode_bf16(in, count, out);
    case Encoding::kQ8_0: return decode_blocks<decode_q8_0>(tensor.encoding, in, count, out);
    case Encoding::kQ4_0: return decode_blocks<decode_q4_0>(tensor.encoding, in, count, out);
    case Encoding::kQ4_1: return decode_blocks<decode_q4_1>(tensor.encoding, in, count, out);
    case Encoding::kQ4_K: return decode_blocks<decode_q4_k>(tensor.encoding, in, count, out);
    case Encoding::kQ6_K: return decode_blocks<decode_q6_k>(tensor.encoding, in, count, out);
    case Encoding::kI64: return decode_integers<std::int64_t>(in, count, out);
    case Encoding::kI32: return decode_integers<std::int32_t>(in, count, out);
    case Encoding::kU8: return decode_integers<std::uint8_t>(in, count, out);
    case Encoding::kF8E4M3: return decode_e4m3(in, count, out);
  }
}

}  // namespace levada::files
