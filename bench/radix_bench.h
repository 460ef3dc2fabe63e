// What: the radix tree bench behind `levada bench radix`: the operations of docs/measurements.md, page sizes 1 and 64.
// Owner: none, a function.
// Thread: the caller's.
// Invariant: case names are those of house.md §8, with suffix _p1 or _p64; trees are built untimed, pages come from a
// pool. Trees: one path of 64K random tokens in 16 or 128 equal nodes; or 1,024 shared tokens with 10,000 leaves of 64.
#pragma once

#include <vector>

#include "bench/bench.h"

namespace levada::bench {

// `scale` multiplies the number of samples of every case (1 gives stable medians in about ten seconds); each case takes
// at least one.
std::vector<Case> run_radix_bench(double scale = 1.0);

}  // namespace levada::bench
