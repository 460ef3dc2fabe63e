// What: tools, tool_choice and parallel_tool_calls of a chat request, checked.
// Owner: its parser.
// Thread: its owner's.
// Invariant: names are unique; a named choice is one of the tools. With tool_choice "none" there are no tools.
// Fields: docs/api.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reply/parser.h"
#include "serve/field_reader.h"
#include "serve/guide_fields.h"

namespace levada::serve {

struct ToolWish {
  std::string listed;               // the list as the template is given it; empty: no tools
  std::vector<reply::Tool> tools;   // as the answer's parser needs them
  std::optional<GuideWish> forced;  // the answer is nothing but calls
};

struct ToolRules {
  reply::CallFormat format;       // how the model writes calls
  bool normalize_choice = false;  // --openai-normalize-tool-choice: other dialects' spellings of tool_choice count, too
};

Result<ToolWish> read_tools(const FieldReader& fields, const ToolRules& rules);

}  // namespace levada::serve
