// What: find_json_fault(), the place of what the JSON parser refused without saying where.
// Owner: a pure function.
// Thread: any.
// Invariant: faults are found in reading order; a body that simdjson accepts has none but halves of surrogate pairs.
// Format: RFC 8259; a path reads "messages[2].name".
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace levada::serve {

// kInvalidArgument whose field is the path of the first value nested deeper than `max_depth` levels, number outside 64
// bits, or string that is not valid Unicode text. Ok if there is none: what is wrong, if anything, is the structure.
Status find_json_fault(std::string_view body, std::size_t max_depth);

// Whether some escape may be half of a surrogate pair: simdjson does not refuse all of those that are.
bool may_hold_surrogates(std::string_view body);

}  // namespace levada::serve
