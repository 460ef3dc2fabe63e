// What: how answers of the served model are read: ReplyStyle, its way of calling tools and of reasoning, by option or by its
// family; and what a chat request makes of it.
// Owner: ModelContext; request parsers.
// Thread: immutable.
// Invariant: a family is known by its tokenizer and its chat template, never by the model's name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sampling_params.h"
#include "reply/parser.h"
#include "serve/grammar_guide.h"
#include "text/tokenizer.h"

namespace levada::serve {

struct ReplyStyle {
  std::optional<reply::CallFormat> calls = reply::CallFormat::kHermes;
  std::optional<reply::ReasoningTags> reasoning;
  bool always_open = false;                // answers begin inside the reasoning, whatever the prompt says
  std::optional<ReasoningTokens> tokens;   // where both tags are single tokens
  std::string calls_name, reasoning_name;  // as the log tells them at start
};

// `tool_call_parser`, `reasoning_parser`: SGLang's names, "none", or "auto" for the family's own. kInvalidArgument names
// another one. A null tokenizer has no family.
Result<ReplyStyle> reply_style(const std::string& tool_call_parser, const std::string& reasoning_parser,
                               const text::Tokenizer* tokenizer);

// The answer continues this prompt.
bool reasoning_is_open(const ReplyStyle& style, std::string_view prompt);
// Tags that are special tokens must reach the answer's parser as text.
void keep_tags(const ReplyStyle& style, const reply::Form& form, const text::Tokenizer& tokenizer,
               core::SamplingParams& sampling);

}  // namespace levada::serve
