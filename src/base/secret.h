// What: comparing a secret somebody shows with the one expected.
// Owner: none.
// Thread: any.
// Invariant: the time taken depends on the lengths alone, so that a key can't be guessed byte by byte.
#pragma once

#include <cstddef>
#include <string_view>

namespace levada {

inline bool equal_in_constant_time(std::string_view given, std::string_view expected) {
  if (given.size() != expected.size()) return false;
  volatile unsigned char difference = 0;  // so that no compiler stops at the first one
  for (std::size_t i = 0; i < given.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (given[i] ^ expected[i]));
  }
  return difference == 0;
}

}  // namespace levada
