#include "serve/openai_text.h"

#include <algorithm>

#include "serve/json_text.h"

namespace levada::serve {

std::string openai_head(const CallSpec& call, const char* object, std::int64_t created_unix_s) {
  std::string head = "{\"id\":";
  append_json_string(head, call.id);
  head += std::string(",\"object\":\"") + object + "\",\"created\":" + std::to_string(created_unix_s) + ",\"model\":";
  append_json_string(head, call.model);
  head += ',';
  return head;
}

void append_matched(const core::Finish& finish, std::string& out) {
  if (const auto* token = std::get_if<core::Token>(&finish.matched)) {
    out += std::to_string(*token);
  } else if (const auto* text = std::get_if<std::string>(&finish.matched)) {
    append_json_string(out, *text);
  } else {
    out += "null";
  }
}

void append_openai_finish(const std::optional<core::Finish>& finish, std::string& out, bool called) {
  out += "\"finish_reason\":";
  if (!finish) {
    out += "null";
    return;
  }
  const char* stopped = called ? "\"tool_calls\"" : "\"stop\"";
  out += finish->reason == core::FinishReason::kLength ? "\"length\"" : stopped;
  out += ",\"matched_stop\":";
  append_matched(*finish, out);
}

std::int64_t reasoning_tokens(const std::optional<ReasoningTokens>& tags, const AnswerFold& fold) {
  if (!tags) return 0;
  const auto& ids = fold.token_ids;
  const auto begin = tags->open ? ids.begin() : std::find(ids.begin(), ids.end(), tags->begin);
  const auto end = std::find(begin, ids.end(), tags->end);
  return end - begin + (end == ids.end() ? 0 : 1);
}

void append_usage(const std::vector<AnswerFold>& folds, std::size_t choices, const UsageForm& form, std::string& out) {
  std::int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
  for (std::size_t member = 0; member < folds.size(); ++member) {
    completion += folds[member].completion_tokens;
    reasoning += reasoning_tokens(form.reasoning, folds[member]);
    if (member % choices != 0) continue;
    prompt += folds[member].prompt_tokens;
    cached += folds[member].cached_tokens;
  }
  out += "{\"prompt_tokens\":" + std::to_string(prompt) + ",\"completion_tokens\":" + std::to_string(completion) +
         ",\"total_tokens\":" + std::to_string(prompt + completion) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(cached) + "}";
  if (form.compat == OpenAiCompat::kKimi) out += ",\"cached_tokens\":" + std::to_string(cached);
  const bool details = form.reasoning || form.compat == OpenAiCompat::kGlm;
  if (details) out += ",\"completion_tokens_details\":{\"reasoning_tokens\":" + std::to_string(reasoning) + "}";
  out += '}';
}

}  // namespace levada::serve
