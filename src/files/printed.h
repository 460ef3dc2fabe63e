// What: how names and shapes from a file are shown in messages.
// Owner: none.
// Thread: any.
// Invariant: what comes back is short printable ASCII, whatever the file holds.
// No format of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace levada::files {

// "[2, 3]"
std::string to_string(std::span<const std::int64_t> shape);
// A name from a file in single quotes: bytes outside printable ASCII escaped, long ones cut.
std::string in_quotes(std::string_view name);

}  // namespace levada::files
