// What: how a numbered operation is remembered: a digest of its request and its reply as short text.
// Owner: free functions.
// Thread: any.
// Invariant: two requests have the same digest only if every field is the same (up to a 64-bit collision); decode_reply is
// the inverse of encode_reply for the replies that numbered operations have.
// Format: "cursor 12" · "released 3" · "state ready" · "ok" · "complete 1"; the columns last_op_hash and last_op_reply.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "fanout/messages.h"

namespace levada::fanout {

// Writes each field with its name and length, so that no two different requests give the same text.
template <class T>
class DigestText {
 public:
  explicit DigestText(const T& value, std::string& text) : value_(value), text_(text) {}

  template <class M>
  void operator()(std::string_view name, M T::*member) {
    append(name);
    put(value_.*member);
  }
  template <class M>
  void optional(std::string_view name, M T::*member) {
    (*this)(name, member);
  }
  template <class M>
  void flat(M T::*member) {
    M::fields(DigestText<M>(value_.*member, text_));
  }

 private:
  void append(std::string_view piece) {
    text_ += std::to_string(piece.size());
    text_ += ':';
    text_ += piece;
  }
  void put(const std::string& value) { append(value); }
  void put(std::integral auto value) { append(std::to_string(value)); }
  template <NamedEnum E>
  void put(E value) {
    append(to_string(value));
  }
  void put(const std::vector<std::string>& values) {
    append(std::to_string(values.size()));
    for (const std::string& value : values) append(value);
  }

  const T& value_;
  std::string& text_;
};

template <class R>
std::int64_t digest_of(const R& request) {
  std::string text(R::kOp);
  R::fields(DigestText<R>(request, text));
  return static_cast<std::int64_t>(hash64(std::as_bytes(std::span(text))));
}

std::string encode_reply(const Reply& reply);
// nullopt if the text is none of the formats above.
std::optional<Reply> decode_reply(std::string_view text);

}  // namespace levada::fanout
