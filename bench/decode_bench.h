// What: the decode bench behind `levada bench decode`: tokens per second of a real model through the engine's worker.
// Owner: none, a function; it takes model and pool, as a worker does.
// Thread: the caller's, beside the worker's own.
// Invariant: real plans in the scheduler's form, greedy, with the one-step lookahead of serving; weights and kernels are
// those that serve. Cases: decode_1_limit (what one stream could reach if a step did nothing but read the weights as
// fast as all cores read memory, measured before and after decode_1), decode_1 and decode_8 (streams; tok/s over all), prefill_512,
// prefill_512_captured (the same with five layers captured, published and removed).
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "bench/bench.h"
#include "model/model.h"

namespace levada::bench {

// Pages the pool needs.
std::int32_t decode_bench_pages(const core::KvLayout& layout);

// `scale` multiplies the number of samples. kResourceExhausted when the pool has too few pages.
Result<std::vector<Case>> run_decode_bench(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool,
                                           double scale = 1.0);

}  // namespace levada::bench
