#include "files/printed.h"

#include <cstdio>

namespace levada::files {

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dimension);
  }
  return text + "]";
}

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kShown = 120;
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(c));
      text += escaped;
    }
  }
  return text + (name.size() > kShown ? "…'" : "'");
}

}  // namespace levada::files
