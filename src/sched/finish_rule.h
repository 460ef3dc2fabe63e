// What: finish_rule(), the one place that decides whether and where an answer ends (law 4), and StopRules, its criteria.
// Owner: StopRules belong to the request's state.
// Thread: the scheduler's; pure apart from the decoder passed in.
// Invariant: earliest token wins; on one token a stop id goes before a stop string, and both before the length.
// Text, ids, usage and cache key are all cut where this function says.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/request.h"
#include "text/stream_decoder.h"

namespace levada::sched {

struct StopRules {
  std::vector<core::Token> stop_ids;  // ascending; eos included unless it is ignored
  std::vector<std::string> stop_strings;
  std::int32_t min_new_tokens = 0;  // the first so many tokens never stop
  std::int32_t max_new_tokens = 0;  // already capped by context and pool
  bool keep_stop = false;           // the matched id's text stays in the answer
};

// `max_new_tokens`: what context and pool leave for output.
StopRules make_stop_rules(const core::SamplingParams& sampling, std::span<const core::Token> eos,
                          std::int32_t max_new_tokens);

struct FinishVerdict {
  std::int32_t cut = 0;  // how many of the fresh tokens belong to the answer
  std::optional<core::Finish> finish;
};

// `produced` tokens were accepted before the fresh ones. Appends the text that may be released to `text`; at a finish
// that includes all that was held back. A null decoder means no text and no stop strings.
FinishVerdict finish_rule(const StopRules& rules, std::span<const core::Token> fresh, std::int32_t produced,
                          text::StreamDecoder* decoder, std::string& text);

}  // namespace levada::sched
