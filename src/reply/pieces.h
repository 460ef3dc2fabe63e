// What: Piece, a part of an answer as a client is told of it: content, reasoning, or one whole tool call; Tool, what may be
// called.
// Owner: values.
// Thread: any.
// Invariant: a call is never told in part; neighbours of one kind are one piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace levada::reply {

struct Piece {
  enum class Kind { kContent, kReasoning, kCall } kind = Kind::kContent;
  std::string text;  // of a call: its arguments, one JSON object
  std::string name;  // of a call
  bool operator==(const Piece&) const = default;
};
using Pieces = std::vector<Piece>;

inline void append_text(Pieces& pieces, Piece::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!pieces.empty() && pieces.back().kind == kind) {
    pieces.back().text += text;
  } else {
    pieces.push_back({kind, std::string(text), {}});
  }
}

struct Tool {
  std::string name;
  std::vector<std::string> text_parameters;  // those whose values are texts, for formats that don't quote them
};

}  // namespace levada::reply
