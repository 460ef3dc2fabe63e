// What: Form, how a model's answers are to be read, and Parser, one answer's text into pieces: reasoning first, then content
// and tool calls.
// Owner: Form is shared by the answers of one call; a Parser is one answer's.
// Thread: Form is immutable; a Parser is its owner's.
// Invariant: the pieces of a streamed answer, neighbours of one kind joined, are those of the whole one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reply/reasoning_splitter.h"
#include "reply/tool_parser.h"

namespace levada::reply {

struct Form {
  std::optional<ReasoningTags> reasoning;  // none: all is content
  bool reasoning_open = false;             // the prompt ends inside it
  std::optional<CallFormat> calls;         // none: calls stay text
  std::vector<Tool> tools;
};

class Parser {
 public:
  explicit Parser(const Form& form);

  // Appends what is decided.
  void push(std::string_view text, Pieces& pieces);
  // Appends the rest. Nothing may follow.
  void finish(Pieces& pieces);
  bool in_reasoning() const { return splitter_ && splitter_->inside(); }

 private:
  void tell(std::string_view content, Pieces& pieces);

  std::optional<ReasoningSplitter> splitter_;
  std::unique_ptr<ToolParser> tools_;
};

}  // namespace levada::reply
