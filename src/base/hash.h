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
#include <memory>
#include <span>

namespace levada {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
Hash128 hash128(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// hash64 of bytes that come in pieces: the value depends on the bytes alone, not on where they were cut.
class Hash64Stream {
 public:
  Hash64Stream();
  ~Hash64Stream();
  Hash64Stream(Hash64Stream&&) noexcept;
  Hash64Stream& operator=(Hash64Stream&&) noexcept;

  void update(std::span<const std::byte> piece);
  // Of everything so far; more may follow.
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace levada
