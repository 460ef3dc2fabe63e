// What: turns what a user calls a model into a path: the name `smollm2`, a GGUF file, or a Hugging Face folder.
// Owner: none.
// Thread: any.
// Invariant: never downloads anything; a name that is not known and not a path is answered with what would be accepted.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"

namespace levada::cli {

// kNotFound naming the path tried and the accepted forms.
Result<std::filesystem::path> locate_model(const std::string& name);

// A tokenizer for the model at `model`: `asked` (a tokenizer.json or a folder with one) if not empty, else the model's
// own. Returns a tokenizer.json, or the GGUF itself.
Result<std::filesystem::path> locate_tokenizer(const std::filesystem::path& model, const std::string& asked);

}  // namespace levada::cli
