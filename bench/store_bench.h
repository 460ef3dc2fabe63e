// What: the store bench behind `levada bench store`: puts and gets over TCP and into shared memory beside their limits.
// Owner: none, a function.
// Thread: the caller's is the client; the store's server and the raw socket's far end have one each.
// Invariant: limits (memcpy_nt_*, raw_tcp_*) are measured in the same run, with the same sizes, by turns with what they
// limit. CPU figures are of the whole process, both sides together.
// Cases: docs/measurements.md. A rate is one object's bytes over the time of its put or get.
#pragma once

#include <vector>

#include "base/status.h"
#include "bench/bench.h"

namespace levada::bench {

// `scale` multiplies the number of samples; from 0.1 on it needs 1.3 GB of memory, below the largest objects are left out.
Result<std::vector<Case>> run_store_bench(double scale = 1.0);

}  // namespace levada::bench
