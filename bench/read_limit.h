// What: measure_read_limit, how fast all cores together read memory in order: what bounds a decode step on the CPU.
// Owner: none, a function.
// Thread: the caller's, beside threads of its own.
// Invariant: the buffer is larger than any cache we know; only loads and adds.
#pragma once

#include <cstdint>
#include <vector>

namespace levada::bench {

// Bytes per second, one figure a pass over 512 MiB.
std::vector<double> measure_read_limit(std::int32_t passes);

}  // namespace levada::bench
