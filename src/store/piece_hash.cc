#include "store/piece_hash.h"

#include <vector>

#include "base/hash.h"

namespace levada::store {

std::uint64_t piece_hash(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> pieces(piece_count(bytes.size()));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::span<const std::byte> rest = bytes.subspan(i * kHashPieceBytes);
    pieces[i] = hash64(i + 1 == pieces.size() ? rest : rest.first(kHashPieceBytes));
  }
  return fold_pieces(pieces);
}

bool matches_checksum(std::span<const std::byte> bytes, std::uint64_t checksum) {
  return hash64(bytes) == checksum || (piece_count(bytes.size()) > 1 && piece_hash(bytes) == checksum);
}

std::uint64_t fold_pieces(std::span<const std::uint64_t> pieces) {
  return pieces.size() == 1 ? pieces.front() : hash64(std::as_bytes(pieces));
}

}  // namespace levada::store
