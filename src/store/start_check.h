// What: check_importable(), the start-up check of an arena on a device: what is written into it is what others read.
// Owner: none.
// Thread: before anybody else uses the arena.
// Invariant: the arena is as empty afterwards as before.
// The memory is exported and imported in this process, by the way in which a consumer's process gets it.
#pragma once

#include "store/arena.h"

namespace levada::store {

// kInternal if other bytes come back than were written; else what export, import or copy failed with. REQUIRES: the
// arena is on a device.
Status check_importable(Arena& arena);

}  // namespace levada::store
