// What: stream_copy(), memcpy for objects that are larger than the caches: stores that bypass them.
// Owner: none.
// Thread: any.
// Invariant: the bytes are in place for every thread that is told afterwards (a fence ends the copy). The same bytes
// arrive whichever instructions the processor has: AVX-512, AVX2 or plain memcpy, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace levada::store {

// Below this the reader probably finds the bytes in a cache, and ordinary stores are the better ones.
inline constexpr std::size_t kStreamFromBytes = 256 * 1024;

// REQUIRES: equal lengths, no overlap.
void stream_copy(std::span<std::byte> to, std::span<const std::byte> from);

// The same, and XXH3-64 of the bytes, hashed piece by piece while each piece is in the cache.
std::uint64_t stream_copy_hashed(std::span<std::byte> to, std::span<const std::byte> from);

// One way of copying, for tests and benches; nullptr if this processor lacks it. "avx512", "avx2", "plain".
using CopyFunction = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
CopyFunction copy_function(const char* name);

}  // namespace levada::store
