// What: XXH3 over bytes, 64 and 128 bits wide; for look-up tables, cache identity and damage checks.
// Owner: none.
// Thread: any.
// Invariant: the same bytes and seed give the same value on every machine and in every version (XXH3 is frozen). Not
// cryptographic: an adversary can build collisions.
// Format: the numbers are what `xxhsum -H3` and `xxhsum -H2` print, highest byte first.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace levada {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
Hash128 hash128(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace levada
