#include "base/hex.h"

#include <charconv>
#include <cstdio>
#include <utility>

namespace levada {

std::string hex64(std::uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

Result<std::uint64_t> parse_hex64(std::string_view digits, std::string field) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != 16 || error != std::errc() || end != digits.data() + digits.size()) {
    return invalid_argument("must be 16 hexadecimal digits", std::move(field));
  }
  return value;
}

}  // namespace levada
