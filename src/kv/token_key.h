// What: TokenKey, an O(1) view of the key a prefix is stored under: a run of tokens (S22) or of bigrams (S21) in a
// namespace.
// Owner: never owns; the token array behind it must outlive the call it is passed to. Nodes store compact owned copies.
// Thread: value type.
// Invariant: a bigram key of n tokens has n - 1 elements, element i being (t[i], t[i+1]); it compares raw tokens
// shifted by one, nothing is materialised. Lengths are in elements; page alignment applies to elements.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "core/ids.h"

namespace levada::kv {

// Interned by RadixTree::intern(); equal ids mean equal namespaces, compared field by field (law 8).
enum class NamespaceId : std::uint32_t {};

// The namespace of requests that name none; always interned.
inline constexpr NamespaceId kDefaultNamespace{0};

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
    LEVADA_CHECK(first >= 0 && count >= 0 && first <= size() && count <= size() - first, "a slice outside the key");
    return {tokens_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(tokens_behind(count))),
            namespace_, bigram_};
  }
  // How many tokens spell `elements` consecutive elements of this key.
  std::int32_t tokens_behind(std::int32_t elements) const { return bigram_ && elements > 0 ? elements + 1 : elements; }

  std::span<const core::Token> tokens() const { return tokens_; }
  NamespaceId name_space() const { return namespace_; }
  bool bigram() const { return bigram_; }

 private:
  std::span<const core::Token> tokens_;
  NamespaceId namespace_;
  bool bigram_;
};

}  // namespace levada::kv
