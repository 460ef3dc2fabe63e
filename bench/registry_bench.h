// What: the registry bench behind `levada bench registry`: durable transitions per second, and how soon a waiting acquire
// hears of its sample.
// Owner: none, a function.
// Thread: the caller's, the registry's, and one for each HTTP client.
// Invariant: every transition is durable (SQLite, synchronous=FULL) before it is counted. `fdatasync_4k` is measured in
// the same run on the same file system: one commit cannot be faster.
// Cases: docs/measurements.md.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/bench.h"

namespace levada::bench {

// `scale` multiplies the number of samples. Works in a temporary folder of the current one, which it removes.
Result<std::vector<Case>> run_registry_bench(double scale = 1.0);

}  // namespace levada::bench
