// What: `levada bench grammar`: masks of an answer that follows a typical JSON schema, over a model's vocabulary.
// Owner: the bench command.
// Thread: the caller's.
// Invariant: one sample of mask_fill and accept is one token of the answer; of compile, a schema that shares no rule but
// JSON's own with those before; compile_first includes sorting the vocabulary.
#pragma once

#include <vector>

#include "bench/bench.h"

namespace levada::text {
class Tokenizer;
}

namespace levada::bench {

// `scale` multiplies the number of samples.
std::vector<Case> run_grammar_bench(double scale, const text::Tokenizer& tokenizer);

}  // namespace levada::bench
