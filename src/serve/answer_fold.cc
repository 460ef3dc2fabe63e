#include "serve/answer_fold.h"

#include "base/check.h"

namespace levada::serve {

void AnswerFold::fold(const core::OutputDelta& delta, std::int64_t since_arrival_us) {
  LEVADA_CHECK(!done(), "no delta may follow the one that finishes");
  text += delta.text;
  token_ids.insert(token_ids.end(), delta.token_ids.begin(), delta.token_ids.end());
  prompt_tokens = delta.prompt_tokens;
  cached_tokens = delta.cached_tokens;
  completion_tokens = delta.completion_tokens;
  finish = delta.finish;
  latency_us = since_arrival_us;
}

}  // namespace levada::serve
