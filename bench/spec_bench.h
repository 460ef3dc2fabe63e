// What: the bench of speculative decoding behind `levada bench spec`: what drafts that are always right, always wrong, made of
// n-grams or by a draft model give, against plain decoding in the same run.
// Owner: none, a function; it takes model and pool, as a worker does.
// Thread: the caller's, beside the worker's and one of each scheduler.
// Invariant: the way of service, scheduler and worker; every run with drafts stands between two plain ones on the same
// prompts, and its speedup is by their mean, so that what the machine does beside cancels. Answers are compared.
// Cases, for 1, 4 and 16 requests (_b1, _b4, _b16): plain, plain_repeating (prompts whose end has been there before), and for
// each of control (plain decoding once more: by what its speedup differs from 1 the others may err), rejected,
// rejected_fixed (without adaptation), oracle (always right, block 8), ngram, ngram_repeating, draft:
//   NAME_bN tok/s while all requests decode; NAME_bN_speedup; NAME_bN_length, tokens per step, the bonus included;
//   NAME_bN_accepted_I, share of the blocks with an I-th draft that kept it; NAME_bN_equal, share of answers equal to plain.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bench/bench.h"
#include "core/ids.h"
#include "model/model.h"

namespace levada::bench {

struct SpecBench {
  std::filesystem::path draft;                      // folder; empty: no draft model
  std::vector<std::vector<core::Token>> prompts;    // ordinary ones; an answer ends at its eos
  std::vector<std::vector<core::Token>> repeating;  // of which a copy goes on
  std::vector<core::Token> eos;                     // the model's own where empty
  std::vector<std::int32_t> batches = {1, 4, 16};
  std::int32_t new_tokens = 96;
  double scale = 1;              // multiplies the rounds
  const Clock* clock = nullptr;  // what schedulers measure steps with; null: the system's
};

Result<std::vector<Case>> run_spec_bench(std::unique_ptr<model::Model> model, std::unique_ptr<model::KvPool> pool,
                                         const SpecBench& bench);

// One picture of a run's cases: speedups over batch sizes, and what is accepted by place in the block.
Status write_spec_chart(const std::string& file, const std::vector<Case>& cases);

}  // namespace levada::bench
