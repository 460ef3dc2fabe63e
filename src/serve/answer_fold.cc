#include "serve/answer_fold.h"

#include "base/check.h"

namespace levada::serve {

void AnswerFold::fold(const core::OutputDelta& delta, std::int64_t since_arrival_us) {
  LEVADA_CHECK(!done(), "no delta may follow the one that finishes");
  text += delta.text;
  if (token_ids.empty()) first_latency_us = since_arrival_us;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(token_ids, delta.token_ids);
  append(logprobs, delta.logprobs);
  append(prompt_logprobs, delta.prompt_logprobs);
  append(hidden, delta.hidden);
  prompt_tokens = delta.prompt_tokens;
  cached_tokens = delta.cached_tokens;
  completion_tokens = delta.completion_tokens;
  speculation = delta.speculation;
  finish = delta.finish;
  latency_us = since_arrival_us;
}

}  // namespace levada::serve
