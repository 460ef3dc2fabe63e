#include "text/byte_alphabet.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace levada::text {
namespace {

constexpr std::uint32_t kEnd = 0x144;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// By code point: the byte, or -1.
constexpr std::array<std::int16_t, kEnd> kByteOf = [] {
  std::array<std::int16_t, kEnd> table{};
  for (auto& entry : table) entry = -1;
  std::uint32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[stands_for_itself(byte) ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return table;
}();

}  // namespace

std::optional<std::string> bytes_of_symbols(std::string_view symbols) {
  std::string bytes;
  for (std::size_t at = 0; at < symbols.size();) {
    const Utf8Char c = decode_utf8(symbols, at);
    if (c.kind != Utf8Char::Kind::kValid || c.code_point >= kEnd || kByteOf[c.code_point] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOf[c.code_point]);
    at += c.size;
  }
  return bytes;
}

std::string symbols_of_bytes(std::string_view bytes) {
  std::string symbols;
  for (const char byte : bytes) {
    // Every code point of the alphabet lies below U+0144: one or two bytes of UTF-8.
    const auto found = std::find(kByteOf.begin(), kByteOf.end(), static_cast<unsigned char>(byte));
    const auto code_point = static_cast<std::uint32_t>(found - kByteOf.begin());
    if (code_point < 0x80) {
      symbols += static_cast<char>(code_point);
    } else {
      symbols += static_cast<char>(0xC0 | code_point >> 6);
      symbols += static_cast<char>(0x80 | (code_point & 0x3F));
    }
  }
  return symbols;
}

}  // namespace levada::text
