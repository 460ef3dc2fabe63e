// What: the HTTP bench behind `levada bench http`: what a request and a streamed event cost the I/O thread.
// Owner: none, a function.
// Thread: the caller's is the load (16 connections); the server has its own.
// Invariant: figures are CPU time of the I/O thread, because the load shares the machine's cores with it.
// Cases: hello_16c per request; sse_16c per event, one write each; sse_16c_x8 per event, eight to a turn.
#pragma once

#include <vector>

#include "base/status.h"
#include "bench/bench.h"

namespace levada::bench {

// `scale` multiplies the number of samples. kUnavailable if no loopback port can be had.
Result<std::vector<Case>> run_http_bench(double scale = 1.0);

}  // namespace levada::bench
