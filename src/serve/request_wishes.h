// What: what a request wants beside one answer's text: several choices, log probabilities, biases.
// Owner: request parsers.
// Thread: theirs.
// Invariant: none beyond request_parser.h.
// Private to the request parsers.
#pragma once

#include <string>

#include "serve/request_parser.h"

namespace levada::serve {

inline constexpr std::int64_t kMaxChoices = 128;

// n: 1 to 128.
std::size_t read_choices(FieldReader& fields);
// logprobs and top_logprobs of chat, 0 to 20.
std::optional<core::LogprobRequest> read_chat_logprobs(FieldReader& fields);
// logprobs of completions, 0 to 5. With echo the prompt's tokens get theirs, too.
std::optional<core::LogprobRequest> read_completion_logprobs(FieldReader& fields, bool echo);
// An object of token ids to numbers of [-100, 100].
void read_logit_bias(FieldReader& fields, const ModelContext& model, std::vector<core::LogitBias>& biases);

// Adds call.choices members that answer the request's prompt. Choice i draws with the request's seed + i, so that it
// equals a call of its own with that seed. kInvalidArgument if the call becomes too large.
Status add_members(const ParseContext& context, core::Request request, const std::string& rid, CallSpec& call);

// kPayloadTooLarge if the answer would hold more log probabilities and elements of hidden states than fit in memory.
Status check_wishes(const CallSpec& call);

}  // namespace levada::serve
