// What: the benches behind `levada bench cuda-smollm2` and `cuda-qwen3-8b`: the CUDA engine as it serves, scheduler,
// worker, graphs and all, with random weights of that shape, beside the limits of the GPU measured in the same run.
// Owner: none, functions.
// Thread: the caller's, beside the scheduler's and the worker's own.
// Invariant: greedy, distinct prompts, no end before the last token; of a rate with a limit, NAME_of_limit follows it.
// Cases: read_limit, product_limit; decode_1; smollm2: generate_512 (512 answers of 300 tokens, from submission to the last
// token), prefill_32x512; qwen3-8b: decode_64_at_2k, prefill_8k; then the same prompts in greater number turn about without and
// with five layers captured into an arena on the GPU, until all samples are readable: capture_plain, capture_on,
// capture_overhead.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/bench.h"

namespace levada::text {
class Tokenizer;
}

namespace levada::bench {

// `shape`: what RandomDecoder knows. With a tokenizer, turning tokens into text is part of the step. `scale` multiplies the
// samples of a case. kUnavailable without a GPU.
Result<std::vector<Case>> run_cuda_bench(std::string_view shape, double scale, const text::Tokenizer* tokenizer);

}  // namespace levada::bench
