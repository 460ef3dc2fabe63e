// What: the alphabet in which byte-level BPE vocabularies are written: one printable character per byte value.
// Owner: process-wide constants.
// Thread: any.
// Invariant: a bijection between 256 bytes and 256 code points below U+0144. Bytes that are printable in Latin-1 (! to
// ~, U+00A1 to U+00AC, U+00AE to U+00FF) stand for themselves; the other 68, in order, are U+0100 onwards: a space is
// U+0120, "Ġ".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace levada::text {

// The bytes that `symbols` (UTF-8) stands for; nullopt when a character isn't of the alphabet.
std::optional<std::string> bytes_of_symbols(std::string_view symbols);
// The symbols that stand for `bytes`.
std::string symbols_of_bytes(std::string_view bytes);

}  // namespace levada::text
