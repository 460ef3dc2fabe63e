// What: PromptTokenizer, a raw prompt as the tokens the target would be asked with.
// Owner: the preparation at start.
// Thread: one at a time.
// Invariant: the same tokens as the serving process makes of the same messages or text: the same tokenizer files, template
// and rules.
// A text is begun as the tokenizer's rules say (bos or not); a chat template writes its own special tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "producer/prompt_file.h"

namespace levada::producer {

// kInvalidArgument naming the prompt if it can't be rendered.
using TokenizePrompt = std::function<Result<std::vector<std::int32_t>>(const Prompt&)>;

// `tokenizer`: a tokenizer.json or a GGUF file. The template is the tokenizer's own.
Result<TokenizePrompt> open_prompt_tokenizer(const std::filesystem::path& tokenizer);

}  // namespace levada::producer
