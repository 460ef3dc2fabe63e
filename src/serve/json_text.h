// What: JSON written as text, for the paths where building a tree per streamed token would cost too much.
// Owner: pure functions.
// Thread: any.
// Invariant: what is appended is valid JSON whatever bytes come in; invalid UTF-8 becomes U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace levada::serve {

// The text with JSON's escapes, without the quotes around it.
void append_json_escaped(std::string& out, std::string_view text);
// The text as a JSON string, quotes included.
void append_json_string(std::string& out, std::string_view text);
// "1,2,3", without the brackets around it; starts with a comma if `out` already ends in a number.
void append_json_ids(std::string& out, const std::vector<std::int32_t>& ids);

}  // namespace levada::serve
