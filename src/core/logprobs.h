// What: TokenLogprob, how probable the model found one token, and its most probable alternatives.
// Owner: a value, from the executor to the answer.
// Thread: any.
// Invariant: natural logarithms of the model's own distribution, before temperature, penalties, biases and masks; always
// finite: what is less probable than kLeastLogprob says, or no number, is kLeastLogprob.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace levada::core {

inline constexpr float kLeastLogprob = -9999.0f;  // OpenAI's sign for "very unlikely"
inline constexpr std::int32_t kMaxTopLogprobs = 128;

struct TokenLogprob {
  struct Alternative {
    Token token = 0;
    float logprob = 0;
  };
  Token token = 0;
  float logprob = 0;
  std::vector<Alternative> top;  // best first, lower ids first among equals; may hold the token itself
};

}  // namespace levada::core
