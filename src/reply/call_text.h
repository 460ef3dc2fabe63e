// What: the text of one call into its name and its arguments.
// Owner: pure functions.
// Thread: any.
// Invariant: arguments are one JSON object, nested 64 levels at most; false leaves `call` alone.
#pragma once

#include <string_view>
#include <vector>

#include "reply/pieces.h"

namespace levada::reply {

// {"name": …, "arguments" or "parameters": object, or a string that holds one}; no arguments are {}.
bool read_json_call(std::string_view text, const std::vector<Tool>& tools, Piece& call);
// f<arg_key>k</arg_key><arg_value>v</arg_value>…
bool read_glm_call(std::string_view text, const std::vector<Tool>& tools, Piece& call);

}  // namespace levada::reply
