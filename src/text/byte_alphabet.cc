#include "text/byte_alphabet.h"

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

}  // namespace levada::text
