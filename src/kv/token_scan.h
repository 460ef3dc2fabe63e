// What: the two loops over raw tokens that a tree walk spends its time in: first mismatch, and hash of a first page.
// Owner: none, pure functions.
// Thread: any.
// Invariant: a hash only chooses where to look; equality is always decided by common_prefix().
// Measured against the limits in docs/measurements.md: a 64K-token match is one pass of memcmp plus O(nodes).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/ids.h"

namespace levada::kv {

// Number of leading tokens that a[0, tokens) and b[0, tokens) share.
inline std::int32_t common_prefix(const core::Token* a, const core::Token* b, std::int32_t tokens) {
  // memcmp is the fastest comparison the C library has for this CPU but doesn't say where the difference is: compare in
  // blocks small enough that looking for it afterwards costs little.
  constexpr std::int32_t kBlockTokens = 1024;
  std::int32_t at = 0;
  while (at < tokens) {
    const std::int32_t block = std::min(kBlockTokens, tokens - at);
    if (std::memcmp(a + at, b + at, static_cast<std::size_t>(block) * sizeof(core::Token)) != 0) break;
    at += block;
  }
  static_assert(std::endian::native == std::endian::little, "the first of two tokens is the low half of the word");
  for (; at + 2 <= tokens; at += 2) {
    std::uint64_t left, right;
    std::memcpy(&left, a + at, sizeof(left));
    std::memcpy(&right, b + at, sizeof(right));
    if (left != right) return at + static_cast<std::int32_t>(static_cast<std::uint32_t>(left ^ right) == 0);
  }
  return at < tokens && a[at] == b[at] ? at + 1 : at;
}

inline std::uint64_t multiply_fold(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Where to look for the child of `parent` whose key begins with these tokens (at least one).
inline std::uint64_t child_hash(const void* parent, const core::Token* page, std::int32_t tokens) {
  constexpr std::uint64_t kSalt[] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0xd6e8feb86659fd93};
  // Both chains start from the parent's address, which clients don't know, so they can't aim at collisions.
  const std::uint64_t start = reinterpret_cast<std::uintptr_t>(parent);
  std::uint64_t lanes[2] = {start, multiply_fold(start, kSalt[2])};
  std::int32_t at = 0;
  // Two independent chains of multiplications, 32 bytes a turn.
  for (; at + 8 <= tokens; at += 8) {
    std::uint64_t words[4];
    std::memcpy(words, page + at, sizeof(words));
    lanes[0] = multiply_fold(words[0] ^ kSalt[0], words[1] ^ lanes[0]);
    lanes[1] = multiply_fold(words[2] ^ kSalt[1], words[3] ^ lanes[1]);
  }
  for (; at < tokens; ++at) {
    lanes[0] = multiply_fold(static_cast<std::uint32_t>(page[at]) ^ kSalt[2], lanes[0] ^ kSalt[0]);
  }
  return multiply_fold(lanes[0] ^ kSalt[1], lanes[1] ^ kSalt[3]);
}

}  // namespace levada::kv
