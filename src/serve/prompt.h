// What: prompts, from text or ids in a request to tokens that are in the vocabulary and fit.
// Owner: pure functions over a ModelContext.
// Thread: any.
// Invariant: a prompt that comes back has at least one token, every id lies in the vocabulary, and check_fits accepted
// it.
// Over-long input is kPayloadTooLarge on every path (S4).
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "serve/model_context.h"

namespace levada::serve {

Result<std::vector<core::Token>> prompt_from_text(const ModelContext& context, std::string_view text,
                                                  const std::string& field, bool add_special_tokens);
// As above for a JSON value that must be a string.
Result<std::vector<core::Token>> prompt_from_string(const ModelContext& context, simdjson::dom::element text,
                                                    const std::string& field);
Result<std::vector<core::Token>> prompt_from_ids(const ModelContext& context, simdjson::dom::element ids,
                                                 const std::string& field);

// Token ids in a list, each checked against the vocabulary; may be empty, at most `max_count`.
Result<std::vector<core::Token>> token_list(const ModelContext& context, simdjson::dom::element ids,
                                            const std::string& field, std::size_t max_count);

// kPayloadTooLarge if the text has more bytes than any text that fits (ModelContext::max_text_bytes).
Status check_text_bytes(const ModelContext& context, std::size_t bytes, const std::string& field = {});
// kInvalidArgument if a list holds more than max_batch_prompts.
Status check_batch_size(const ModelContext& context, std::size_t items, const std::string& field);

// One prompt, or a list of them: a string, [ids], ["a", "b"] or [[ids], [ids]]. A list of strings or of lists is a
// batch.
struct Prompts {
  std::vector<Result<std::vector<core::Token>>> items;  // what is wrong with one is its own
  bool batch = false;
};
Result<Prompts> prompts_from(const ModelContext& context, simdjson::dom::element value, const std::string& field);

}  // namespace levada::serve
