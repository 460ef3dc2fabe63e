// What: looking for tags in text that arrives in pieces.
// Owner: pure functions.
// Thread: any.
// Invariant: what is held back is the longest suffix that could still become the tag, never more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace levada::reply {

// How many bytes at the text's end are a proper prefix of `tag`.
inline std::size_t held_for(std::string_view text, std::string_view tag) {
  for (std::size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size) {
    if (text.ends_with(tag.substr(0, size))) return size;
  }
  return 0;
}

inline constexpr std::string_view kBlanks = " \t\r\n";

inline std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

}  // namespace levada::reply
