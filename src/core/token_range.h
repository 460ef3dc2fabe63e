// What: TokenRange, the label every array of per-token rows travels with (law 1).
// Owner: value type.
// Thread: any.
// Invariant: row i of the array belongs to token first + i of the request; count == rows at every hand-over. Positions
// are 0-based over the request's whole token list (prompt, then output).
#pragma once

#include <cstdint>

#include "core/ids.h"

namespace levada::core {

struct TokenRange {
  RequestId request{};
  std::int32_t first = 0;
  std::int32_t count = 0;

  std::int32_t end() const { return first + count; }
  bool operator==(const TokenRange&) const = default;
};

}  // namespace levada::core
