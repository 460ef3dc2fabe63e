// What: AddedTokenMatcher, which finds the texts of added tokens (<|im_start|> …) before the text is pre-tokenized.
// Owner: the Tokenizer.
// Thread: any.
// Invariant: leftmost match first, longest of those; matches don't overlap. single_word, lstrip and rstrip as Hugging
// Face's tokenizers library has them. A byte trie; text without a first byte of any added token is skipped at memory
// speed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace levada::text {

class AddedTokenMatcher {
 public:
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  struct Match {
    std::size_t begin, end;  // byte range swallowed, white space included
    Token id;
  };
  // The first match at or after `from`; false if none. With skip_special, special tokens' texts stay plain text.
  bool next(std::string_view text, std::size_t from, bool skip_special, Match& match) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> children;  // sorted by byte
    std::int32_t token = -1;                                       // index into tokens_
  };
  void insert(std::int32_t index);
  std::int32_t child(std::int32_t node, unsigned char byte) const;
  std::int32_t longest_at(std::string_view text, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
};

}  // namespace levada::text
