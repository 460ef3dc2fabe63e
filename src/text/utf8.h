// What: UTF-8 decoding, one code point at a time, and the lossy streaming sanitizer behind StreamDecoder.
// Owner: none (free functions) and whoever streams (Utf8Sanitizer).
// Thread: its owner's.
// Invariant: well-formedness is Unicode's table 3-7: no surrogates, no overlong forms, nothing above U+10FFFF; each
// maximal subpart of an ill-formed sequence counts as one error, as in WHATWG's decoder and Python's errors="replace".
// Format: the Unicode Standard, section 3.9.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace levada::text {

struct Utf8Char {
  std::uint32_t code_point;  // 0xFFFD when not valid
  std::uint8_t size;         // bytes taken, at least 1
  enum class Kind : std::uint8_t { kValid, kInvalid, kIncomplete } kind;
};

// Decodes the sequence at text[at]; `at` must lie inside. kIncomplete: the text ends inside what could become valid.
Utf8Char decode_utf8(std::string_view text, std::size_t at);

// Byte offset of the first ASCII-free position: the length of the leading run of ASCII bytes.
std::size_t ascii_prefix(std::string_view text);

// Turns arbitrary bytes, given in pieces, into valid UTF-8. How the bytes are cut into pieces doesn't change the
// result.
class Utf8Sanitizer {
 public:
  // Appends what is decided. A sequence that can still become valid (at most 3 bytes) is kept back.
  void push(std::string_view bytes, std::string& out);
  // The kept-back tail becomes one U+FFFD.
  void finish(std::string& out);
  bool has_tail() const { return !tail_.empty(); }

 private:
  void append(std::string_view bytes, std::string& out);
  std::string tail_;
};

}  // namespace levada::text
