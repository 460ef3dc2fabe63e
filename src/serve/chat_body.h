// What: ChatBody, a chat request's JSON as the adapters of other dialects write it, and its way through parse_chat().
// Owner: the parser of one request.
// Thread: its owner's.
// Invariant: json() is one JSON object; each field stands in it once.
// Private to the adapters (chat_adapter.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "serve/request_parser.h"

namespace levada::serve {

// What the chat endpoint calls a field, and what the adapter's clients do.
struct Renamed {
  std::string_view chat, client;
};

class ChatBody {
 public:
  // `json` is a JSON value; empty is ignored.
  void set(std::string_view name, std::string_view json);
  void set_text(std::string_view name, std::string_view text);
  // The client's field as it stands, under the chat endpoint's name; absent and null are left out.
  void copy(const FieldReader& fields, std::string_view client, std::string_view chat);
  // The fields that mean the same in every dialect: sampling beyond OpenAI's, rid, priority, cache keys, grammars.
  void copy_common(const FieldReader& fields);

  // One more message: `fields` is the inside of a JSON object.
  void add_message(std::string_view fields);
  // {"role": role, "content": text}
  void add_text(std::string_view role, std::string_view text);
  // {"role": "tool", "tool_call_id": id, "content": text}
  void add_tool_result(std::string_view id, std::string_view text);

  // Parses what was written; faults are renamed to the client's words.
  Result<CallSpec> parse(const ParseContext& context, std::span<const Renamed> renamed) const;

 private:
  std::string fields_, messages_;
};

// Text parts of a content, joined as /v1/chat/completions does: a string, or a list of objects whose `type` is one of
// `types`.
Result<std::string> text_of_content(simdjson::dom::element content, const std::string& field,
                                    std::span<const std::string_view> types);

// What the assistant said and called in one turn of the past: one chat message.
class AssistantTurn {
 public:
  // Parts of a turn's text are joined by a space.
  void add_text(std::string_view text);
  // `arguments`: a JSON object as text.
  void add_call(std::string_view id, std::string_view name, std::string_view arguments);
  bool has_text() const { return any_text_; }
  // The message, if there was anything; a new turn begins.
  void end(ChatBody& chat);

 private:
  std::string text_, calls_;
  bool any_text_ = false;
};

// {"type": "function", "function": {"name": …, …}}; null fields are left out.
struct FunctionTool {
  std::string_view name;
  std::optional<simdjson::dom::element> description, parameters, strict;
};
std::string function_tool_json(const FunctionTool& tool);
// The body's `tools` as the chat's, each as `tool_json` has it; it may refuse one. Absent: nothing is set.
Status set_tools(const FieldReader& fields, Result<std::string> (*tool_json)(const FieldReader& tool), ChatBody& chat);
// The choice of one tool: {"type": "function", "function": {"name": name}}
std::string named_choice_json(std::string_view name);

// The field's text; kInvalidArgument if it is absent or no string.
Result<std::string> required_text(const FieldReader& fields, std::string_view name);

}  // namespace levada::serve
