// What: SHA-256 over bytes, for names and digests that other programs compute too or that an adversary must not collide.
// Owner: none.
// Thread: any.
// Invariant: FIPS 180-4. Slow beside hash64 (base/hash.h): for ids and digests, not for data.
// The text form is 64 lower-case hexadecimal digits.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace levada {

std::array<std::byte, 32> sha256(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

}  // namespace levada
