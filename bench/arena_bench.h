// What: run_arena_bench(), an arena on a device between two processes: publication, reading and freeing of samples.
// Owner: `levada bench nvlink-arena`.
// Thread: forks its consumer at once, so the process must not have opened a device or started a thread before.
// Invariant: every sample that arrives is compared with what was published, byte for byte outside what is timed; an arena
// that isn't free at the end is a failure.
#pragma once

#include <vector>

#include "base/status.h"
#include "bench/bench.h"
#include "device/device.h"

namespace levada::bench {

struct ArenaBench {
  device::DeviceKind device = device::DeviceKind::kCuda;
  std::size_t sample_bytes = 104'000'000;  // large samples, a multiple of 8
  int samples = 64;
  std::size_t large_arena = std::size_t{16} << 30, small_arena = std::size_t{2} << 30;
  int small_rounds = 200;  // of 32 samples of 64 KiB
};

// "device_copy" is what one copy within the device reaches in the same run; everything in GB/s is to be held against it.
Result<std::vector<Case>> run_arena_bench(const ArenaBench& options);

}  // namespace levada::bench
