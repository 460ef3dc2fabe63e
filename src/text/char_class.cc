#include "text/char_class.h"

#include <unicode/uchar.h>

#include <array>

namespace levada::text {
namespace {

constexpr CharClass ascii_class(unsigned char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharClass::kSpace;
  return CharClass::kOther;
}

constexpr std::array<CharClass, 128> kAscii = [] {
  std::array<CharClass, 128> table{};
  for (unsigned char c = 0; c < 128; ++c) table[c] = ascii_class(c);
  return table;
}();

}  // namespace

CharClass char_class(std::uint32_t code_point) {
  if (code_point < 128) return kAscii[code_point];
  const auto mask = U_MASK(u_charType(static_cast<UChar32>(code_point)));
  if (mask & U_GC_L_MASK) return CharClass::kLetter;
  if (mask & U_GC_N_MASK) return CharClass::kNumber;
  return u_isUWhiteSpace(static_cast<UChar32>(code_point)) ? CharClass::kSpace : CharClass::kOther;
}

bool is_word(std::uint32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  if (code_point < 128)
    return kAscii[code_point] == CharClass::kLetter || kAscii[code_point] == CharClass::kNumber || c == '_';
  if (u_isUAlphabetic(c) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL)) return true;
  return (U_MASK(u_charType(c)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

ClassifiedChar char_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 128) return {byte, 1, kAscii[byte]};
  const Utf8Char c = decode_utf8(text, at);
  return {c.code_point, c.size, c.kind == Utf8Char::Kind::kValid ? char_class(c.code_point) : CharClass::kOther};
}

}  // namespace levada::text
