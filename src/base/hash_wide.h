// What: XXH3's inner loops compiled for AVX2, for hash.cc alone, which chooses at run time.
// Owner: none.
// Thread: any.
// Invariant: the same values as the plain build, bit for bit; never called on a processor without AVX2.
// C types only: an inline function of the standard library compiled here could be linked into everything else.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace levada::hash_detail {

uint64_t hash64_avx2(const void* bytes, size_t size, uint64_t seed);
// `state` is an XXH3_state_t of hash.cc.
void update_avx2(void* state, const void* bytes, size_t size);

}  // namespace levada::hash_detail
