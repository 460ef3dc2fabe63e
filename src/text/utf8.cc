#include "text/utf8.h"

#include <cstring>

#include "text/tokenizer.h"

namespace levada::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct LeadByte {
  std::uint8_t size;       // 0: can't start a character
  std::uint8_t low, high;  // range of the second byte
};

LeadByte classify(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  using Kind = Utf8Char::Kind;
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, Kind::kValid};
  const LeadByte form = classify(lead);
  if (form.size == 0) return {0xFFFD, 1, Kind::kInvalid};
  std::uint32_t code_point = lead & (0x7Fu >> form.size);
  for (std::uint8_t i = 1; i < form.size; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, Kind::kIncomplete};
    const auto next = static_cast<unsigned char>(text[at + i]);
    const bool fits = i == 1 ? next >= form.low && next <= form.high : (next & 0xC0) == 0x80;
    if (!fits) return {0xFFFD, i, Kind::kInvalid};
    code_point = code_point << 6 | (next & 0x3Fu);
  }
  return {code_point, form.size, Kind::kValid};
}

std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = ascii_prefix(text); at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.kind != Utf8Char::Kind::kValid) return at;
    at += c.size;
  }
  return std::string_view::npos;
}

void Utf8Sanitizer::push(std::string_view bytes, std::string& out) {
  if (tail_.empty()) return append(bytes, out);
  std::string joined = std::move(tail_);
  tail_.clear();
  joined += bytes;
  append(joined, out);
}

void Utf8Sanitizer::append(std::string_view bytes, std::string& out) {
  std::size_t copied = 0;
  for (std::size_t at = ascii_prefix(bytes); at < bytes.size();) {
    const Utf8Char c = decode_utf8(bytes, at);
    if (c.kind == Utf8Char::Kind::kIncomplete) {
      out += bytes.substr(copied, at - copied);
      tail_.assign(bytes.substr(at));
      return;
    }
    if (c.kind == Utf8Char::Kind::kInvalid) {
      out += bytes.substr(copied, at - copied);
      out += kReplacement;
      copied = at + c.size;
    }
    at += c.size;
  }
  out += bytes.substr(copied);
}

void Utf8Sanitizer::finish(std::string& out) {
  if (!tail_.empty()) out += kReplacement;
  tail_.clear();
}

}  // namespace levada::text
