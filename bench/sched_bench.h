// What: the scheduler bench behind `levada bench sched`: what one step costs the brain's thread.
// Owner: none, a function.
// Thread: the caller's.
// Invariant: case names are those of house.md §8; the executor computes nothing, so only plan + apply are measured.
// step_64r, step_512r: so many requests decode with one step of lookahead, 128 prompt tokens each, pages of 16 tokens;
// one sample is one Scheduler::step() = mailbox, apply a token each (finish rule and text included), plan a row each,
// submit, deltas, gauges.
#pragma once

#include <vector>

#include "bench/bench.h"

namespace levada::text {
class Tokenizer;
}

namespace levada::bench {

// `scale` multiplies the number of samples. Without a tokenizer the deltas carry ids only and text costs nothing.
std::vector<Case> run_sched_bench(double scale = 1.0, const text::Tokenizer* tokenizer = nullptr);

}  // namespace levada::bench
