// What: ModelContext, all that turning a request body into a core::Request needs to know of the served model.
// Owner: Api; parsers borrow it.
// Thread: immutable after construction, read from the intake threads.
// Invariant: check_fits is the scheduler's own (law 5): the door and the admission never disagree.
// tokenizer may be null (ids in, ids out); chat_template may be null (no chat endpoint).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/model_info.h"
#include "grammar/compiler.h"
#include "serve/openai_compat.h"
#include "serve/reply_form.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace levada::serve {

struct ModelContext {
  core::ModelInfo info;
  std::string served_name;
  std::string tokenizer_folder;            // what /model_info names
  std::int32_t context_length_tokens = 0;  // prompt + output
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;
  grammar::Compiler* grammars = nullptr;  // null: no answer has a form
  ReplyStyle replies;
  std::function<Status(std::int32_t prompt_tokens)> check_fits;
  OpenAiCompat compat = OpenAiCompat::kNone;
  bool normalize_tool_choice = false;
  std::int64_t max_batch_prompts = 1024;
  bool return_hidden_states = false;                    // requests may ask for them
  std::optional<std::int64_t> chat_default_max_tokens;  // none: the rest of the context
  // A text longer than this is over-long whatever its tokens are: refused before it is tokenized. Derived once by
  // longest_fitting_text_bytes().
  std::size_t max_text_bytes = 0;
};

// An upper bound of the bytes of any text of `context_length_tokens` tokens.
std::size_t longest_fitting_text_bytes(const text::Tokenizer& tokenizer, std::int32_t context_length_tokens);

}  // namespace levada::serve
