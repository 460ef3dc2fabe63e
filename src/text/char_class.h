// What: the three Unicode classes that pre-tokenizers ask for: letters \p{L}, numbers \p{N}, white space \s.
// Owner: a process-wide constant table.
// Thread: any.
// Invariant: \s is the White_Space property, as in the regex engine Hugging Face uses; classes don't overlap. Source of
// the classes: ICU's character database (Unicode 15 in Debian 12). ASCII is answered from a table, other code points
// from ICU's trie.
#pragma once

#include <cstdint>
#include <string_view>

#include "text/utf8.h"

namespace levada::text {

enum class CharClass : std::uint8_t { kLetter, kNumber, kSpace, kOther };

CharClass char_class(std::uint32_t code_point);
// \w as Unicode's regex rules have it: alphabetic, marks, decimal digits, connector punctuation, join controls.
bool is_word(std::uint32_t code_point);

struct ClassifiedChar {
  std::uint32_t code_point;
  std::uint8_t size;  // bytes
  CharClass kind;
};

// The character at text[at]. A byte that isn't valid UTF-8 is one kOther character.
ClassifiedChar char_at(std::string_view text, std::size_t at);

}  // namespace levada::text
