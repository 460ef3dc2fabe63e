// What: ChatReply, one choice's text as OpenAI's message: content, reasoning_content, tool_calls.
// Owner: ChatFormat, one per choice.
// Thread: the I/O thread.
// Invariant: a call's index counts the calls of its choice; its id is unique in the server; it comes whole, in one delta.
#pragma once

#include <string>
#include <string_view>

#include "reply/parser.h"

namespace levada::serve {

class ChatReply {
 public:
  // `ids`: what the ids of its calls begin with.
  ChatReply(const reply::Form& form, std::string ids) : parser_(form), ids_(std::move(ids)) {}

  // What is decided by this text; all that is left with `last`.
  reply::Pieces take(std::string_view text, bool last);
  // The inside of a delta that tells the piece: "content":…
  void append_delta(const reply::Piece& piece, std::string& out);
  // The fields of a whole message that say these pieces. `reasons`: reasoning_content is told, if only as null.
  void append_message(const reply::Pieces& pieces, bool reasons, std::string& out);
  bool called() const { return calls_ > 0; }

 private:
  void append_call(const reply::Piece& call, bool indexed, std::string& out);

  reply::Parser parser_;
  std::string ids_;
  int calls_ = 0;
};

}  // namespace levada::serve
