// What: ToolParser, an answer's content into text and tool calls, in the way its model writes calls.
// Owner: one answer's Parser.
// Thread: its owner's.
// Invariant: how the text is cut into pieces does not change what comes out. A call comes out whole or not at all: what begins
// like one and is cut, broken, or names no tool of the request stays text. Nothing is lost but a call's own syntax and the
// blanks next to it.
// Formats, with their names (SGLang's):
//   hermes, qwen, qwen25   <tool_call>{"name": "f", "arguments": {…}}</tool_call>
//   llama3                 {"name": "f", "parameters": {…}}, first in the answer or after <|python_tag|>; more after ";"
//   glm, glm45, glm47      <tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value>…</tool_call>; texts stand unquoted
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reply/pieces.h"

namespace levada::reply {

class ToolParser {
 public:
  virtual ~ToolParser() = default;
  virtual void push(std::string_view text, Pieces& pieces) = 0;
  virtual void finish(Pieces& pieces) = 0;
};

enum class CallFormat { kHermes, kLlama3, kGlm };

// The format of a name above; false for another one.
bool call_format_of(std::string_view name, CallFormat& format);
// "hermes, llama3, …" for messages.
std::string call_format_names();
std::unique_ptr<ToolParser> make_tool_parser(CallFormat format, std::vector<Tool> tools);

}  // namespace levada::reply
