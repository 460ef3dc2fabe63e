// What: decoded(), tokens back to bytes in one go, for tests that compare texts.
// Owner: the test.
// Thread: any.
// Invariant: plain concatenation: may be invalid UTF-8 when cut inside a character. Serving uses StreamDecoder.
// No format of its own.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace levada::text {

inline std::string decoded(const Tokenizer& tokenizer, const std::vector<Token>& tokens,
                           bool skip_special_tokens = true) {
  std::string text;
  for (const Token token : tokens) {
    if (!skip_special_tokens || !tokenizer.is_special(token)) text += tokenizer.bytes(token);
  }
  return text;
}

}  // namespace levada::text
