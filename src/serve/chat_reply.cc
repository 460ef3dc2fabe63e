#include "serve/chat_reply.h"

#include "serve/json_text.h"

namespace levada::serve {

using Kind = reply::Piece::Kind;

reply::Pieces ChatReply::take(std::string_view text, bool last) {
  reply::Pieces pieces;
  parser_.push(text, pieces);
  if (last) parser_.finish(pieces);
  return pieces;
}

void ChatReply::append_call(const reply::Piece& call, bool indexed, std::string& out) {
  out += '{';
  if (indexed) out += "\"index\":" + std::to_string(calls_) + ",";
  out += "\"id\":";
  append_json_string(out, ids_ + std::to_string(calls_++));
  out += ",\"type\":\"function\",\"function\":{\"name\":";
  append_json_string(out, call.name);
  out += ",\"arguments\":";
  append_json_string(out, call.text);
  out += "}}";
}

void ChatReply::append_delta(const reply::Piece& piece, std::string& out) {
  if (piece.kind == Kind::kCall) {
    out += "\"tool_calls\":[";
    append_call(piece, true, out);
    out += ']';
    return;
  }
  out += piece.kind == Kind::kReasoning ? "\"reasoning_content\":" : "\"content\":";
  append_json_string(out, piece.text);
}

void ChatReply::append_message(const reply::Pieces& pieces, bool reasons, std::string& out) {
  std::string content, reasoning, calls;
  for (const reply::Piece& piece : pieces) {
    if (piece.kind == Kind::kContent) content += piece.text;
    if (piece.kind == Kind::kReasoning) reasoning += piece.text;
    if (piece.kind != Kind::kCall) continue;
    if (!calls.empty()) calls += ',';
    append_call(piece, false, calls);
  }
  const auto text_or_null = [&](const std::string& text, bool null) {
    if (null) {
      out += "null";
    } else {
      append_json_string(out, text);
    }
  };
  out += "\"content\":";
  text_or_null(content, content.empty() && called());
  if (reasons) {
    out += ",\"reasoning_content\":";
    text_or_null(reasoning, reasoning.empty());
  }
  if (called()) out += ",\"tool_calls\":[" + calls + "]";
}

}  // namespace levada::serve
