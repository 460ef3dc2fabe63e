#include "text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "text/char_class.h"

namespace levada::text {
namespace {

struct Name {
  std::string_view name;
  PreTokenizer kind;
};

// Several families share a regex and differ only in the name the GGUF converter gave them.
constexpr Name kNames[] = {
    {"gpt-2", PreTokenizer::kGpt2},
    {"gpt2", PreTokenizer::kGpt2},
    {"default", PreTokenizer::kGpt2},
    {"smollm", PreTokenizer::kSmollm},
    {"starcoder", PreTokenizer::kSmollm},
    {"qwen2", PreTokenizer::kQwen2},
    {"deepseek-r1-qwen", PreTokenizer::kQwen2},
    {"llama-bpe", PreTokenizer::kLlamaBpe},
    {"llama3", PreTokenizer::kLlamaBpe},
    {"llama-v3", PreTokenizer::kLlamaBpe},
};

struct Pattern {
  std::string_view regex;
  PreTokenizer kind;
};

constexpr Pattern kPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", PreTokenizer::kGpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     PreTokenizer::kQwen2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     PreTokenizer::kLlamaBpe},
};

// One text between two positions; run_end gives the end of the run of one class that starts at `at`.
struct Scan {
  std::string_view text;
  std::size_t limit;

  ClassifiedChar at(std::size_t position) const { return char_at(text, position); }
  std::size_t run_end(std::size_t at, CharClass kind) const {
    while (at < limit) {
      const ClassifiedChar c = char_at(text, at);
      if (c.kind != kind) break;
      at += c.size;
    }
    return at;
  }
  bool is(std::size_t at, CharClass kind) const { return at < limit && char_at(text, at).kind == kind; }
};

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// The end of 's 't 're 've 'm 'll 'd at `at`, or `at`. With fold_case, U+017F (long s) counts as s, as regex folding
// has it.
std::size_t contraction_end(const Scan& scan, std::size_t at, bool fold_case) {
  if (scan.text[at] != '\'' || at + 1 >= scan.limit) return at;
  const auto letter = [&](std::size_t i) -> char {
    if (i >= scan.limit) return 0;
    const char c = scan.text[i];
    return fold_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  if (fold_case && scan.text.substr(at + 1, 2) == "\xC5\xBF" && at + 3 <= scan.limit) return at + 3;
  return at;
}

// `\s+(?!\S)|\s+`: the run of white space at `at`, less its last character if something else follows and two are there.
std::size_t space_end(const Scan& scan, std::size_t at) {
  std::size_t end = at, last = at;
  while (scan.is(end, CharClass::kSpace)) {
    last = end;
    end += scan.at(end).size;
  }
  return end < scan.limit && last > at ? last : end;
}

// `\s*[\r\n]+`: through the last newline of the run of white space at `at`; `at` if the run has none.
std::size_t newline_end(const Scan& scan, std::size_t at) {
  std::size_t end = at;
  for (std::size_t i = at; scan.is(i, CharClass::kSpace); i += scan.at(i).size) {
    if (is_newline(scan.text[i])) end = i + 1;
  }
  return end;
}

}  // namespace

std::optional<PreTokenizer> pre_tokenizer_by_name(std::string_view name) {
  for (const Name& known : kNames) {
    if (known.name == name) return known.kind;
  }
  return std::nullopt;
}

std::string_view regex_of(PreTokenizer kind) {
  for (const Pattern& pattern : kPatterns) {
    if (pattern.kind == kind) return pattern.regex;
  }
  return {};
}

std::optional<PreTokenizer> pre_tokenizer_by_regex(std::string_view regex) {
  for (const Pattern& known : kPatterns) {
    if (known.regex == regex) return known.kind;
  }
  return std::nullopt;
}

std::string known_pre_tokenizers() { return "gpt-2, smollm, qwen2, llama-bpe"; }

bool PieceSplitter::next(std::string_view& piece) {
  if (at_ >= text_.size()) return false;
  std::size_t end = at_;
  switch (kind_) {
    case PreTokenizer::kGpt2: end = match_gpt2(text_.size()); break;
    case PreTokenizer::kSmollm: end = match_gpt2(smollm_limit()); break;
    case PreTokenizer::kQwen2: end = match_qwen(text_.size(), 1); break;
    case PreTokenizer::kLlamaBpe: end = match_qwen(text_.size(), 3); break;
  }
  piece = text_.substr(at_, end - at_);
  at_ = end;
  return true;
}

// Every number stands alone and the regex sees the text between two numbers as if it were the whole text.
std::size_t PieceSplitter::smollm_limit() {
  if (at_ < span_end_) return span_end_;
  const ClassifiedChar first = char_at(text_, at_);
  span_end_ = at_ + first.size;
  if (first.kind == CharClass::kNumber) return span_end_;
  while (span_end_ < text_.size()) {
    const ClassifiedChar c = char_at(text_, span_end_);
    if (c.kind == CharClass::kNumber) break;
    span_end_ += c.size;
  }
  return span_end_;
}

std::size_t PieceSplitter::match_gpt2(std::size_t limit) const {
  const Scan scan{text_, limit};
  if (const std::size_t end = contraction_end(scan, at_, false); end > at_) return end;
  // ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+`: one optional space before a run of one class.
  const std::size_t run = text_[at_] == ' ' ? at_ + 1 : at_;
  if (run < limit) {
    const CharClass kind = scan.at(run).kind;
    if (kind != CharClass::kSpace) return scan.run_end(run, kind);
  }
  return space_end(scan, at_);
}

std::size_t PieceSplitter::match_qwen(std::size_t limit, int max_digits) const {
  const Scan scan{text_, limit};
  if (const std::size_t end = contraction_end(scan, at_, true); end > at_) return end;
  const ClassifiedChar first = scan.at(at_);
  if (first.kind == CharClass::kLetter) return scan.run_end(at_, CharClass::kLetter);
  const std::size_t after = at_ + first.size;
  if (first.kind == CharClass::kNumber) {
    std::size_t end = after;
    for (int digits = 1; digits < max_digits && scan.is(end, CharClass::kNumber); ++digits) end += scan.at(end).size;
    return end;
  }
  // `[^\r\n\p{L}\p{N}]?\p{L}+`: any one character before letters, white space included.
  if (!is_newline(text_[at_]) && scan.is(after, CharClass::kLetter)) return scan.run_end(after, CharClass::kLetter);
  const std::size_t run = text_[at_] == ' ' ? at_ + 1 : at_;
  if (scan.is(run, CharClass::kOther)) {
    std::size_t end = scan.run_end(run, CharClass::kOther);
    while (end < limit && is_newline(text_[end])) ++end;
    return end;
  }
  if (const std::size_t end = newline_end(scan, at_); end > at_) return end;
  return space_end(scan, at_);
}

}  // namespace levada::text
