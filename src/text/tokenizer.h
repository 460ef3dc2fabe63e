// What: Tokenizer, byte-level BPE (the field's "gpt2" model) from tokenizer.json or from a GGUF's vocabulary.
// Owner: whoever loaded it; shared read-only by serve and sched.
// Thread: all const methods from any thread at once.
// Invariant: works on bytes; the bytes of encode(s), joined, are s whenever every byte of s has a token (SmolLM2 lacks
// 21 byte values). Pre-tokenizers known: gpt2, smollm, qwen2 (Qwen2/3), llama-bpe (Llama-3); another one is refused by name at
// load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace levada::files {
class GgufFile;
}

namespace levada::text {

using Token = std::int32_t;

class Tokenizer {
 public:
  // A Hugging Face tokenizer.json (with tokenizer_config.json beside it when there is one).
  static Result<std::unique_ptr<Tokenizer>> from_json(const std::filesystem::path& tokenizer_json);
  // `file` stands for the container in messages.
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const files::GgufFile& gguf, const std::string& file);
  ~Tokenizer();

  struct EncodeOptions {
    bool add_special_tokens = true;    // bos/eos as the tokenizer's post-processor or GGUF flags say
    bool parse_special_tokens = true;  // the text of an added token becomes its id
  };
  // Input must be valid UTF-8 (the border checks it).
  std::vector<Token> encode(std::string_view text, EncodeOptions options = {true, true}) const;
  // Bytes of one token; empty for an id without bytes. Special tokens give their text.
  std::string_view bytes(Token token) const;

  bool is_special(Token token) const;
  std::optional<Token> token_id(std::string_view text) const;  // exact vocabulary or added-token entry
  std::int32_t vocab_size() const;                             // largest id + 1
  std::optional<Token> bos() const;
  std::optional<Token> eos() const;
  // Jinja source shipped with the tokenizer; empty if none.
  const std::string& chat_template() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Byte offset of the first invalid UTF-8 sequence, or npos. Surrogates and overlong forms are invalid.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace levada::text
