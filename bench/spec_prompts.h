// What: the prompts of `levada bench spec`: chat messages of a file or of our own, and texts whose end has been there before.
// Owner: pure functions.
// Thread: any.
// Invariant: messages go through the model's own chat template, as a client's do.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "core/ids.h"
#include "text/tokenizer.h"

namespace levada::bench {

// One prompt a line of `file`: a user's message as it stands, or a JSON object with it as `prompt`, or with `messages`. Empty:
// sixteen of our own.
// kNotFound, or kInvalidArgument naming the line.
Result<std::vector<std::vector<core::Token>>> chat_prompts(const std::string& file, const text::Tokenizer& tokenizer);
// Each a text three times over and the beginning of a fourth: what follows is known.
std::vector<std::vector<core::Token>> repeating_prompts(const text::Tokenizer& tokenizer);

}  // namespace levada::bench
