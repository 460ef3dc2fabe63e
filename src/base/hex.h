// What: 64-bit numbers as text: 16 lower-case hexadecimal digits, the form of checksums, incarnations and hashes in files,
// messages and names.
// Owner: none.
// Thread: any.
// Invariant: parse_hex64(hex64(x)) is x.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace levada {

std::string hex64(std::uint64_t value);

// kInvalidArgument, naming `field`, unless `digits` are exactly 16 hexadecimal ones (either case).
Result<std::uint64_t> parse_hex64(std::string_view digits, std::string field = "");

}  // namespace levada
