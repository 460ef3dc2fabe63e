// What: piece_hash(), the checksum of objects that are written on a device: made of pieces, so that a GPU has work for
// all its processors.
// Owner: none.
// Thread: any.
// Invariant: of up to 32 KiB - 1 it is XXH3-64 of the bytes itself; of more, XXH3-64 of the pieces' XXH3-64 values.
// Format: docs/formats/store.md, "Checksum by pieces"; golden values in tests/vectors/store/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace levada::store {

inline constexpr std::uint64_t kHashPieceBytes = 16 * 1024;

// The last piece takes what is left over as well, so that only a whole object can be shorter than a piece.
constexpr std::uint64_t piece_count(std::uint64_t bytes) { return std::max<std::uint64_t>(1, bytes / kHashPieceBytes); }

std::uint64_t piece_hash(std::span<const std::byte> bytes);
// Whether a ref's checksum is one of these bytes: by pieces, or plain as clients put them.
bool matches_checksum(std::span<const std::byte> bytes, std::uint64_t checksum);
// From the pieces' values, in order. REQUIRES: at least one.
std::uint64_t fold_pieces(std::span<const std::uint64_t> pieces);

}  // namespace levada::store
