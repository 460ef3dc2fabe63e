#include "sched/finish_rule.h"

#include <algorithm>

namespace levada::sched {

using core::Finish;
using core::FinishReason;
using core::Token;

StopRules make_stop_rules(const core::SamplingParams& sampling, std::span<const Token> eos,
                          std::int32_t max_new_tokens) {
  StopRules rules;
  rules.stop_ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) rules.stop_ids.insert(rules.stop_ids.end(), eos.begin(), eos.end());
  std::sort(rules.stop_ids.begin(), rules.stop_ids.end());
  rules.stop_ids.erase(std::unique(rules.stop_ids.begin(), rules.stop_ids.end()), rules.stop_ids.end());
  rules.stop_strings = sampling.stop;
  rules.min_new_tokens = sampling.min_new_tokens;
  rules.max_new_tokens = std::min(sampling.max_new_tokens, max_new_tokens);
  rules.keep_stop = sampling.no_stop_trim;
  return rules;
}

FinishVerdict finish_rule(const StopRules& rules, std::span<const Token> fresh, std::int32_t produced,
                          text::StreamDecoder* decoder, std::string& text) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(fresh.size()); ++i) {
    const Token token = fresh[static_cast<std::size_t>(i)];
    const std::int32_t count = produced + i + 1;
    const bool may_stop = count > rules.min_new_tokens;

    if (may_stop && std::binary_search(rules.stop_ids.begin(), rules.stop_ids.end(), token)) {
      // A stop string may end inside the id's own text: then the decoder has released everything already.
      const bool matched = decoder && rules.keep_stop && decoder->push(token, text).has_value();
      if (decoder && !matched) decoder->finish(text);
      return {i + 1, Finish{FinishReason::kStop, token, {}}};
    }
    // The decoder learns the stop strings only when they begin to count.
    if (decoder && count == rules.min_new_tokens + 1 && rules.min_new_tokens > 0)
      decoder->set_stops(rules.stop_strings);
    if (decoder) {
      if (auto stop = decoder->push(token, text)) return {i + 1, Finish{FinishReason::kStop, std::move(*stop), {}}};
    }
    if (count >= rules.max_new_tokens) {
      if (decoder) decoder->finish(text);
      return {i + 1, Finish{FinishReason::kLength, {}, {}}};
    }
  }
  return {static_cast<std::int32_t>(fresh.size()), std::nullopt};
}

}  // namespace levada::sched
