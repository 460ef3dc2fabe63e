// What: a tokenizer written as the folder Hugging Face's libraries load: tokenizer.json and tokenizer_config.json.
// Owner: pure functions.
// Thread: any.
// Invariant: what is written, loaded again here or by transformers, gives the same ids (bytes without a token aside).
// A GGUF carries its tokenizer inside; clients that count tokens for themselves need it as a folder.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace levada::files {
class GgufFile;
}

namespace levada::text {

struct TokenizerFiles {
  std::string tokenizer_json, tokenizer_config_json;
};

// `file` stands for the container in messages.
Result<TokenizerFiles> tokenizer_files(const files::GgufFile& gguf, const std::string& file);

// Puts the files into a folder of `parent` that is named after their content, unless it is there: two processes that do
// so at once get the same folder, and nobody ever sees half of a file. Returns the folder.
Result<std::filesystem::path> write_tokenizer_folder(const TokenizerFiles& files, const std::filesystem::path& parent);

}  // namespace levada::text
