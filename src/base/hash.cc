#include "base/hash.h"

#define XXH_INLINE_ALL  // the header is the whole library, so nothing is linked
#include <xxhash.h>

#include "base/hash_wide.h"

namespace levada {
namespace {

// Below this the call costs more than the wider registers save.
constexpr std::size_t kWideFromBytes = 512;

bool has_avx2() {
  static const bool supported = __builtin_cpu_supports("avx2");
  return supported;
}

}  // namespace

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  if (bytes.size() >= kWideFromBytes && has_avx2()) return hash_detail::hash64_avx2(bytes.data(), bytes.size(), seed);
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 hash128(std::span<const std::byte> bytes, std::uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.high64, hash.low64};
}

struct Hash64Stream::State {
  XXH3_state_t xxh;
};

Hash64Stream::Hash64Stream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Hash64Stream::~Hash64Stream() = default;
Hash64Stream::Hash64Stream(Hash64Stream&&) noexcept = default;
Hash64Stream& Hash64Stream::operator=(Hash64Stream&&) noexcept = default;

void Hash64Stream::update(std::span<const std::byte> piece) {
  if (has_avx2()) return hash_detail::update_avx2(&state_->xxh, piece.data(), piece.size());
  XXH3_64bits_update(&state_->xxh, piece.data(), piece.size());
}

std::uint64_t Hash64Stream::digest() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace levada
