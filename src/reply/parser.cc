#include "reply/parser.h"

namespace levada::reply {

Parser::Parser(const Form& form) {
  if (form.reasoning) splitter_.emplace(*form.reasoning, form.reasoning_open);
  if (form.calls) tools_ = make_tool_parser(*form.calls, form.tools);
}

void Parser::tell(std::string_view content, Pieces& pieces) {
  if (content.empty()) return;
  if (tools_) return tools_->push(content, pieces);
  append_text(pieces, Piece::Kind::kContent, content);
}

void Parser::push(std::string_view text, Pieces& pieces) {
  if (!splitter_) return tell(text, pieces);
  std::string content;
  splitter_->push(text, pieces, content);
  tell(content, pieces);
}

void Parser::finish(Pieces& pieces) {
  if (splitter_) {
    std::string content;
    splitter_->finish(pieces, content);
    tell(content, pieces);
  }
  if (tools_) tools_->finish(pieces);
}

}  // namespace levada::reply
