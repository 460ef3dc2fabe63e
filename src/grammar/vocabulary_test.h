// What: SmolLM2's tokenizer (49,152 ids) and a Compiler over it, loaded once for all tests.
// Owner: the test process.
// Thread: the test's.
// Invariant: matches() tokenizes as the tokenizer does; a text can be cut into tokens in other ways, too.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "files/gguf.h"
#include "grammar/compiler.h"
#include "grammar/matcher.h"

namespace levada::grammar {

inline const text::Tokenizer& smollm2() {
  static const auto tokenizer = [] {
    auto file = files::GgufFile::open(LEVADA_SMOLLM2_GGUF);
    return text::Tokenizer::from_gguf(**file, LEVADA_SMOLLM2_GGUF).value();
  }();
  return *tokenizer;
}

inline Compiler& compiler() {
  static Compiler compiler(smollm2(), smollm2().vocab_size(), {*smollm2().eos()},
                           {.cpu_ms = 60'000});  // sanitizers slow it down
  return compiler;
}

inline std::vector<std::uint32_t> mask_words() {
  return std::vector<std::uint32_t>((static_cast<std::size_t>(smollm2().vocab_size()) + 31) / 32, ~0u);
}

inline bool shows(const std::vector<std::uint32_t>& words, text::Token id) {
  return (words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1u) != 0;
}

// Every token of the text was shown before it was accepted, and the answer may end after it.
inline bool matches(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  std::vector<text::Token> tokens = smollm2().encode(text, {false, false});
  tokens.push_back(*smollm2().eos());
  for (const text::Token token : tokens) {
    std::vector<std::uint32_t> words = mask_words();
    const bool shown = !matcher.fill(words) || shows(words, token);
    const bool accepted = matcher.accept(token).ok();
    EXPECT_EQ(shown, accepted) << "mask and matcher disagree in: " << text;
    if (!accepted) return false;
  }
  return matcher.is_finished();
}

inline std::shared_ptr<const Grammar> compiled(Source::Kind kind, std::string text) {
  auto grammar = compiler().compile({kind, std::move(text)});
  EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
  return grammar.ok() ? *grammar : nullptr;
}

}  // namespace levada::grammar
