#include "serve/chat_messages.h"

#include "serve/json_text.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

constexpr std::size_t kMaxWordBytes = 64;
constexpr std::size_t kMaxArgumentLevels = 64;
constexpr std::size_t kNoLimit = SIZE_MAX;  // the prompt's length is judged as a whole

bool known_role(std::string_view role) {
  return role == "system" || role == "user" || role == "assistant" || role == "tool" || role == "function";
}

// Text parts in a list are joined by a space, as SGLang does for templates that expect plain strings.
Result<std::string> joined_parts(simdjson::dom::array parts, const std::string& field) {
  std::string text;
  std::size_t index = 0;
  for (const element part : parts) {
    const std::string part_field = field + "[" + std::to_string(index++) + "]";
    if (!part.is_object()) return invalid_argument("must be an object, got " + describe_type(part), part_field);
    FieldReader fields(object_of(part), part_field + ".");
    std::optional<std::string> type, part_text;
    fields.text("type", kMaxWordBytes, &type);
    if (fields.status().ok() && type != "text") {
      return invalid_argument("not supported yet: content of type '" + type.value_or("") + "'; only 'text' is",
                              part_field + ".type");
    }
    fields.text("text", kNoLimit, &part_text);
    if (!part_text) fields.fail("text", "is missing");
    LEVADA_RETURN_IF_ERROR(fields.status());
    if (index > 1) text += ' ';
    text += *part_text;
  }
  return text;
}

Result<std::string> read_content(const FieldReader& fields, std::string_view role) {
  const auto content = fields.find("content");
  const std::string field = fields.path("content");
  if (!content) {
    if (role == "assistant") return std::string();  // a turn that only calls tools
    return invalid_argument("is missing; only an assistant message may leave it out", field);
  }
  if (content->is_string()) return std::string(string_of(*content));
  if (content->is_array()) return joined_parts(array_of(*content), field);
  return invalid_argument("must be a string or a list of text parts, got " + describe_type(*content), field);
}

// One call the assistant made; `arguments` is JSON in a string, or the object itself.
Status check_function(const FieldReader& fields, std::string_view name) {
  const auto value = fields.find(name);
  if (!value) return {};
  if (!value->is_object())
    return invalid_argument("must be an object, got " + describe_type(*value), fields.path(name));
  FieldReader function(object_of(*value), fields.path(name) + ".");
  std::optional<std::string> ignored;
  function.text("name", kNoLimit, &ignored);
  const auto arguments = function.find("arguments");
  if (arguments && !arguments->is_string() && !arguments->is_object()) {
    function.fail("arguments", "must be a string of JSON, got " + describe_type(*arguments));
  }
  return function.status();
}

Status check_tool_calls(const FieldReader& fields) {
  const auto calls = fields.find("tool_calls");
  if (!calls) return {};
  const std::string path = fields.path("tool_calls");
  if (!calls->is_array()) return invalid_argument("must be a list, got " + describe_type(*calls), path);
  std::size_t index = 0;
  for (const element call : array_of(*calls)) {
    const std::string call_path = path + "[" + std::to_string(index++) + "]";
    if (!call.is_object()) return invalid_argument("must be an object, got " + describe_type(call), call_path);
    FieldReader inner(object_of(call), call_path + ".");
    std::optional<std::string> ignored;
    for (const char* text : {"id", "type"}) inner.text(text, kNoLimit, &ignored);
    LEVADA_RETURN_IF_ERROR(inner.status());
    LEVADA_RETURN_IF_ERROR(check_function(inner, "function"));
  }
  return {};
}

// What a template may read beside role and content.
Status check_other_fields(FieldReader& fields) {
  std::optional<std::string> ignored;
  for (const char* text : {"name", "tool_call_id", "refusal", "reasoning_content", "reasoning"}) {
    fields.text(text, kNoLimit, &ignored);
  }
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_RETURN_IF_ERROR(check_function(fields, "function_call"));
  return check_tool_calls(fields);
}

Result<std::string> read_role(FieldReader& fields) {
  std::optional<std::string> role;
  fields.text("role", kMaxWordBytes, &role);
  if (!role) fields.fail("role", "is missing");
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (*role == "developer") return std::string("system");  // templates know the older name
  if (!known_role(*role)) {
    fields.fail("role", "must be system, developer, user, assistant, tool or function, got '" + *role + "'");
    return fields.status();
  }
  return *role;
}

// The answer continues this message: only its text is left of it, so it must hold nothing else.
Status check_continued(const FieldReader& fields, const std::string& role) {
  if (role != "assistant") {
    return invalid_argument("the last message must be the assistant's, got '" + role + "'", "continue_final_message");
  }
  for (const char* name : {"tool_calls", "function_call", "reasoning_content", "reasoning"}) {
    const auto value = fields.find(name);
    if (value && !(value->is_array() && array_of(*value).size() == 0)) {
      return invalid_argument("a message that is continued may hold content only", fields.path(name));
    }
  }
  return {};
}

// Templates write arguments as JSON: a string that holds an object becomes the object.
void append_arguments(element arguments, std::string& out) {
  if (arguments.is_string()) {
    const std::string text(string_of(arguments));
    simdjson::dom::parser parser;
    element read;
    if (parser.allocate(text.size(), kMaxArgumentLevels) == simdjson::SUCCESS &&
        parser.parse(text).get(read) == simdjson::SUCCESS && read.is_object()) {
      out += simdjson::minify(read);
      return;
    }
  }
  out += simdjson::minify(arguments);
}

// A value of `tool_calls`: everything as it is but the arguments.
void append_tool_calls(element value, std::string& out) {
  if (value.is_array()) {
    out += '[';
    for (const element item : array_of(value)) {
      if (out.back() != '[') out += ',';
      append_tool_calls(item, out);
    }
    out += ']';
    return;
  }
  if (!value.is_object()) {
    out += simdjson::minify(value);
    return;
  }
  out += '{';
  for (const auto [key, field] : object_of(value)) {
    if (out.back() != '{') out += ',';
    append_json_string(out, key);
    out += ':';
    if (key == "function") {
      append_tool_calls(field, out);
    } else if (key == "arguments") {
      append_arguments(field, out);
    } else {
      out += simdjson::minify(field);
    }
  }
  out += '}';
}

void append_message(simdjson::dom::object message, const std::string& role, const std::string& content,
                    std::string& out) {
  if (out.size() > 1) out += ',';
  out += "{\"role\":";
  append_json_string(out, role);
  out += ",\"content\":";
  append_json_string(out, content);
  for (const auto [key, value] : message) {
    if (key == "role" || key == "content") continue;
    out += ',';
    append_json_string(out, key);
    out += ':';
    if (key == "tool_calls") {
      append_tool_calls(value, out);
    } else {
      out += simdjson::minify(value);
    }
  }
  out += '}';
}

Status add_message(element message, const std::string& path, bool continues, Conversation& conversation) {
  if (!message.is_object()) return invalid_argument("must be an object, got " + describe_type(message), path);
  FieldReader fields(object_of(message), path + ".");
  LEVADA_ASSIGN_OR_RETURN(const std::string role, read_role(fields));
  LEVADA_ASSIGN_OR_RETURN(std::string content, read_content(fields, role));
  LEVADA_RETURN_IF_ERROR(check_other_fields(fields));
  conversation.text_bytes += content.size();
  if (continues) {
    LEVADA_RETURN_IF_ERROR(check_continued(fields, role));
    conversation.continued = std::move(content);
  } else {
    append_message(object_of(message), role, content, conversation.messages);
  }
  return {};
}

}  // namespace

Result<Conversation> read_messages(const FieldReader& fields, bool continue_final) {
  const auto messages = fields.find("messages");
  if (!messages) return invalid_argument("is missing", "messages");
  if (!messages->is_array()) return invalid_argument("must be a list, got " + describe_type(*messages), "messages");
  const simdjson::dom::array list = array_of(*messages);
  std::size_t count = 0, index = 0;
  for ([[maybe_unused]] const element message : list) ++count;  // size() saturates
  if (count == 0) return invalid_argument("must hold at least one message", "messages");
  Conversation conversation;
  for (const element message : list) {
    const bool continues = continue_final && index + 1 == count;
    LEVADA_RETURN_IF_ERROR(add_message(message, "messages[" + std::to_string(index++) + "]", continues, conversation));
  }
  conversation.messages += ']';
  return conversation;
}

}  // namespace levada::serve
