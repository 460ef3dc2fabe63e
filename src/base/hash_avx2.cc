#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash_wide.h"

namespace levada::hash_detail {

uint64_t hash64_avx2(const void* bytes, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(bytes, size, seed); }

void update_avx2(void* state, const void* bytes, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
}

}  // namespace levada::hash_detail
