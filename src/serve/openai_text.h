// What: the pieces of OpenAI answers that chat and completions share: head, finish, usage.
// Owner: pure functions.
// Thread: any.
// Invariant: valid JSON fragments.
// Private to the two formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/answer_fold.h"
#include "serve/call_spec.h"

namespace levada::serve {

// {"id":…,"object":…,"created":…,"model":…,   (open: fields follow)
std::string openai_head(const CallSpec& call, const char* object, std::int64_t created_unix_s);
// "finish_reason":…,"matched_stop":…; `called`: it stopped after tool calls
void append_openai_finish(const std::optional<core::Finish>& finish, std::string& out, bool called = false);
// The answer's tokens of reasoning, its tags among them; 0 if the model's tags are no single tokens.
std::int64_t reasoning_tokens(const std::optional<ReasoningTokens>& tags, const AnswerFold& fold);
// {"prompt_tokens":…}: sums over the members, but over each prompt once, however many choices it has. Where the model has
// tags, or in GLM's form, completion_tokens_details tells how much of it was reasoning; Kimi's form has cached_tokens.
void append_usage(const std::vector<AnswerFold>& folds, std::size_t choices, const UsageForm& form, std::string& out);
// The matched stop token or string as JSON; null if neither.
void append_matched(const core::Finish& finish, std::string& out);

}  // namespace levada::serve
