// What: StoreChoice, the way consumers read a capture server's objects, and choose_store(), its URL.
// Owner: value types.
// Thread: any.
// Invariant: a reply and /server_info are read by the same rule, so that both name the same store.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace levada::producer {

// What a server offers; empty: not offered.
struct StoreUrls {
  std::string shm, tcp, ucx;
};

enum class StoreChoice : std::uint8_t { kAuto, kShm, kTcp, kUcx };

// kAuto takes shared memory if it is offered, else TCP. kFailedPrecondition naming what isn't offered.
Result<std::string> choose_store(const StoreUrls& urls, StoreChoice choice);

}  // namespace levada::producer
