// What: what a client may ask of sampling, already checked against the vocabulary (serve checks, law 11).
// Owner: the request.
// Thread: immutable once submitted.
// Invariant: temperature 0 means greedy; top_k <= 0 means off; every number is finite.
// Formulas: penalties as OpenAI documents them: logit -= frequency * count(output) + presence * (count(output) > 0);
// repetition penalty as in CTRL (arXiv 1909.05858 §4.1) over prompt and output: logit > 0 ? logit / r : logit * r.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"

namespace levada::core {

struct LogitBias {
  Token token = 0;
  float bias = 0;  // added to the logit after the penalties
};

struct SamplingParams {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::int32_t top_k = 0;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  // Same seed, prompt and parameters give the same tokens whatever else is in the batch. Unset: serve draws one.
  std::uint64_t seed = 0;
  std::vector<LogitBias> logit_bias;  // each id once

  std::int32_t max_new_tokens = 128;
  std::int32_t min_new_tokens = 0;  // stop ids, eos and stop strings are ignored before
  bool ignore_eos = false;
  std::vector<Token> stop_token_ids;
  std::vector<std::string> stop;  // never empty strings
  bool skip_special_tokens = true;
  bool no_stop_trim = false;  // keep the matched stop string in the text
  bool spec_full_blocks =
      false;  // every step verifies all drafts that there are, whatever the pace says: to measure them

  bool greedy() const { return temperature == 0.0f || top_k == 1; }
  bool penalised() const { return frequency_penalty != 0.0f || presence_penalty != 0.0f || repetition_penalty != 1.0f; }
};

}  // namespace levada::core
