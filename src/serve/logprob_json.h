// What: log probabilities as the dialects write them.
// Owner: pure functions.
// Thread: any.
// Invariant: valid JSON with finite numbers; each token has its own alternatives (B40). A token is named by its text, or,
// where its bytes are no UTF-8 of their own, by "bytes:\\xf0\\x9f"; without a tokenizer by its id.
// Private to the formats.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/logprobs.h"
#include "text/tokenizer.h"

namespace levada::serve {

void append_token_name(const text::Tokenizer* tokenizer, core::Token token, std::string& out);
// As exact as it is; null for what is no finite number.
void append_float(float value, std::string& out);

// {"content":[{"token":…,"logprob":…,"bytes":[…],"top_logprobs":[…]}],"refusal":null}
void append_chat_logprobs(const text::Tokenizer* tokenizer, std::span<const core::TokenLogprob> logprobs,
                          std::string& out);

// A token of a completion's text; null: the first of the prompt, of which nothing is known.
struct ToldToken {
  core::Token token = 0;
  const core::TokenLogprob* logprob = nullptr;
};
// {"tokens":[…],"token_logprobs":[…],"top_logprobs":[…],"text_offset":[…]}. `offset`: characters of the text before; moved
// on by those of the tokens.
void append_completion_logprobs(const text::Tokenizer* tokenizer, std::span<const ToldToken> tokens,
                                std::size_t& offset, std::string& out);

// [-0.5,17,null]: SGLang's triple; the text in place of null if `texts`.
void append_triple(const text::Tokenizer* tokenizer, std::optional<float> logprob, core::Token token, bool texts,
                   std::string& out);

}  // namespace levada::serve
