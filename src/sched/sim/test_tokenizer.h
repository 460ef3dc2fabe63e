// What: test_tokenizer(), SmolLM2's tokenizer from tests/vectors, loaded once per test process.
// Owner: the process.
// Thread: any.
// Invariant: its first 320 ids that simulators use all have bytes or are special. No format of its own.
#pragma once

#include <memory>

#include "text/tokenizer.h"

namespace levada::sched::sim {

inline const text::Tokenizer& test_tokenizer() {
  static const std::unique_ptr<text::Tokenizer> tokenizer =
      text::Tokenizer::from_json(LEVADA_SOURCE_DIR "/tests/vectors/smollm2_tokenizer/tokenizer.json").value();
  return *tokenizer;
}

}  // namespace levada::sched::sim
