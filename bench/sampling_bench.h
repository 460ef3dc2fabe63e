// What: the sampling bench behind `levada bench sampling`: what the sample rows of one step cost the brain's thread (S20).
// Owner: none, a function.
// Thread: the caller's.
// Invariant: what is measured is sched::SamplingBatch, the one that plans are built with.
// build_Nr: every row is another request's than in the step before; same_Nr: the batch did not change.
#pragma once

#include <vector>

#include "bench/bench.h"

namespace levada::bench {

// `scale` multiplies the number of samples.
std::vector<Case> run_sampling_bench(double scale = 1.0);

}  // namespace levada::bench
