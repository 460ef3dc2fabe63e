// What: AnswerFold, one member's answer so far: the sum of its deltas, streamed or not (law 10).
// Owner: the Call.
// Thread: the I/O thread.
// Invariant: finish is set once, by the last delta; nothing is folded after it.
// Streams phrase each delta against the fold that already includes it; whole answers phrase the last fold.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/request.h"

namespace levada::serve {

struct AnswerFold {
  std::string text;
  std::vector<core::Token> token_ids;
  std::vector<core::TokenLogprob> logprobs, prompt_logprobs;  // if asked
  std::vector<float> hidden;                                  // if asked
  std::int32_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  core::SpeculationCount speculation;
  std::optional<core::Finish> finish;
  std::int64_t first_latency_us = 0;  // from arrival to the first token
  std::int64_t latency_us = 0;        // from arrival to the newest delta

  void fold(const core::OutputDelta& delta, std::int64_t since_arrival_us);
  bool done() const { return finish.has_value(); }
};

}  // namespace levada::serve
