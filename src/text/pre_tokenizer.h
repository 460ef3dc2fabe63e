// What: the pre-tokenizers of the field's byte-level BPE models: they cut text into pieces that merges never cross.
// Owner: PieceSplitter lives for one text.
// Thread: its owner's.
// Invariant: the pieces concatenated are the text; time is linear in the text, whatever it holds (no backtracking).
// Hand-written matchers of four published regexes (see pre_tokenizer.cc), equal to Hugging Face's on tests/vectors.
// Names: those of GGUF's tokenizer.ggml.pre; regexes: those of tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace levada::text {

enum class PreTokenizer : std::uint8_t { kGpt2, kSmollm, kQwen2, kLlamaBpe };

// The pre-tokenizer that GGUF files call `name`; nullopt for one we don't know.
std::optional<PreTokenizer> pre_tokenizer_by_name(std::string_view name);
// The pre-tokenizer of a Split on `regex`; nullopt for a regex we don't know. Never kSmollm, which takes two steps.
std::optional<PreTokenizer> pre_tokenizer_by_regex(std::string_view regex);
// The regex of that Split; of kSmollm none.
std::string_view regex_of(PreTokenizer kind);
// The names, for messages: "gpt-2, smollm, qwen2, llama-bpe".
std::string known_pre_tokenizers();

class PieceSplitter {
 public:
  PieceSplitter(PreTokenizer kind, std::string_view text) : kind_(kind), text_(text) {}
  // The next piece, never empty; false at the end of the text.
  bool next(std::string_view& piece);

 private:
  std::size_t match_gpt2(std::size_t limit) const;
  std::size_t match_qwen(std::size_t limit, int max_digits) const;
  std::size_t smollm_limit();

  PreTokenizer kind_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t span_end_ = 0;  // smollm: end of the span between two numbers that at_ lies in
};

}  // namespace levada::text
