#include "serve/reply_form.h"

#include <utility>

namespace levada::serve {

namespace {

struct Reasoning {
  std::string_view name, begin, end;
  bool always_open;
};

constexpr Reasoning kReasonings[] = {
    {"qwen3", "<think>", "</think>", false},       {"qwen3-thinking", "<think>", "</think>", true},
    {"glm45", "<think>", "</think>", false},       {"deepseek-r1", "<think>", "</think>", true},
    {"deepseek-v3", "<think>", "</think>", false}, {"kimi", "◁think▷", "◁/think▷", false},
};

std::string family_calls(const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "none";
  if (tokenizer->chat_template().find("<arg_key>") != std::string::npos) return "glm45";
  return tokenizer->token_id("<|python_tag|>") ? "llama3" : "hermes";
}

std::string family_reasoning(const text::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "none";
  const std::string& source = tokenizer->chat_template();
  if (source.find("◁/think▷") != std::string::npos) return "kimi";
  return source.find("</think>") != std::string::npos ? "qwen3" : "none";
}

std::optional<ReasoningTokens> tokens_of(const reply::ReasoningTags& tags, const text::Tokenizer& tokenizer) {
  const auto begin = tokenizer.token_id(tags.begin), end = tokenizer.token_id(tags.end);
  if (!begin || !end) return std::nullopt;
  return ReasoningTokens{*begin, *end, false};
}

Status set_reasoning(const std::string& name, const text::Tokenizer* tokenizer, ReplyStyle& style) {
  style.reasoning_name = name;
  if (name == "none") return {};
  std::string names = "auto, none";
  for (const Reasoning& known : kReasonings) {
    names += ", " + std::string(known.name);
    if (known.name != name) continue;
    style.reasoning = reply::ReasoningTags{std::string(known.begin), std::string(known.end)};
    style.always_open = known.always_open;
    if (tokenizer != nullptr) style.tokens = tokens_of(*style.reasoning, *tokenizer);
    return {};
  }
  return invalid_argument("must be one of " + names + ", got '" + name + "'", "reasoning_parser");
}

}  // namespace

Result<ReplyStyle> reply_style(const std::string& tool_call_parser, const std::string& reasoning_parser,
                               const text::Tokenizer* tokenizer) {
  ReplyStyle style;
  style.calls_name = tool_call_parser == "auto" ? family_calls(tokenizer) : tool_call_parser;
  reply::CallFormat format{};
  if (reply::call_format_of(style.calls_name, format)) {
    style.calls = format;
  } else if (style.calls_name == "none") {
    style.calls.reset();
  } else {
    return invalid_argument(
        "must be one of auto, none, " + reply::call_format_names() + ", got '" + tool_call_parser + "'",
        "tool_call_parser");
  }
  LEVADA_RETURN_IF_ERROR(
      set_reasoning(reasoning_parser == "auto" ? family_reasoning(tokenizer) : reasoning_parser, tokenizer, style));
  return style;
}

bool reasoning_is_open(const ReplyStyle& style, std::string_view prompt) {
  if (!style.reasoning) return false;
  const std::size_t begin = prompt.rfind(style.reasoning->begin), end = prompt.rfind(style.reasoning->end);
  const bool any_begin = begin != std::string_view::npos, any_end = end != std::string_view::npos;
  if (any_begin && (!any_end || end < begin)) {  // opened last: by the template, or by somebody's text long before
    const std::string_view rest = prompt.substr(begin + style.reasoning->begin.size());
    if (rest.find_first_not_of(" \t\r\n") == std::string_view::npos) return true;
  }
  if (!style.always_open) return false;
  // A template that was told not to think closes the reasoning itself.
  return !any_end ||
         prompt.substr(end + style.reasoning->end.size()).find_first_not_of(" \t\r\n") != std::string_view::npos;
}

void keep_tags(const ReplyStyle& style, const reply::Form& form, const text::Tokenizer& tokenizer,
               core::SamplingParams& sampling) {
  const auto is_special = [&](std::string_view tag) {
    const auto id = tokenizer.token_id(tag);
    return id && tokenizer.is_special(*id);
  };
  const bool calls = form.calls && (is_special("<tool_call>") || is_special("<|python_tag|>"));
  const bool reasoning = form.reasoning && (is_special(style.reasoning->begin) || is_special(style.reasoning->end));
  if (calls || reasoning) sampling.skip_special_tokens = false;
}

}  // namespace levada::serve
