// What: the training bench behind `levada bench train`: one optimizer step of a DFlash draft of SmolLM2's shape.
// Owner: none, a function.
// Thread: the caller's, beside libtorch's OpenMP team.
// Invariant: whole steps, gradient clip and AdamW included, on one sample of 512 random tokens, as
// oracles/dflash/bench_dflash.py measures PyTorch (without an optimizer). Cases dflash_step_{block}x{anchors}_{type} and,
// last, the process's peak memory.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/bench.h"

namespace levada::bench {

// `scale` multiplies the number of samples. device "cuda": batches as a GPU trains with, and the trainer's memory beside
// them.
Result<std::vector<Case>> run_train_bench(double scale = 1.0, const std::string& device = "cpu");

}  // namespace levada::bench
