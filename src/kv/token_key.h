// What: TokenKey, an O(1) view of the key a prefix is stored under: a run of tokens (S22) or of bigrams (S21) in a namespace.
// Owner: never owns; the token array behind it must outlive the call it is passed to. Nodes store compact owned copies.
// Thread: value type.
// Invariant: a bigram key of n tokens has n - 1 elements, element i being (t[i], t[i+1]); it compares raw tokens shifted by
// one, nothing is materialised. Lengths are in elements; page alignment applies to elements.
#pragma once

#include <cstdint>
#include <span>

#include "core/ids.h"

namespace levada::kv {

// Interned by RadixTree::intern(); equal ids mean equal namespaces, compared field by field (law 8).
enum class NamespaceId : std::uint32_t {};

class TokenKey {
 public:
  TokenKey(std::span<const core::Token> tokens, NamespaceId ns, bool bigram = false)
      : tokens_(tokens), namespace_(ns), bigram_(bigram) {}

  std::int32_t size() const {
    const auto tokens = static_cast<std::int32_t>(tokens_.size());
    return bigram_ ? (tokens > 0 ? tokens - 1 : 0) : tokens;
  }
  // Elements [first, first + count); the tokens behind them overlap by one for bigrams.
  TokenKey slice(std::int32_t first, std::int32_t count) const {
    return {tokens_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(bigram_ && count > 0 ? count + 1 : count)),
            namespace_, bigram_};
  }
  std::span<const core::Token> tokens() const { return tokens_; }
  NamespaceId name_space() const { return namespace_; }
  bool bigram() const { return bigram_; }

 private:
  std::span<const core::Token> tokens_;
  NamespaceId namespace_;
  bool bigram_;
};

}  // namespace levada::kv
