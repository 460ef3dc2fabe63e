// The body of /v1/messages (Anthropic's form) as a chat body.
#include "serve/chat_adapter.h"
#include "serve/chat_body.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

constexpr std::string_view kTextTypes[] = {"text"};
constexpr Renamed kRenamed[] = {{"stop", "stop_sequences"}};

// What one message's blocks come to.
struct Turn {
  std::string text, tool_calls;  // of the one chat message
  bool any_text = false;
};

void append_text(std::string_view text, Turn& turn) {
  if (turn.any_text) turn.text += ' ';
  turn.any_text = true;
  turn.text += text;
}

Status add_tool_use(const FieldReader& block, Turn& turn) {
  LEVADA_ASSIGN_OR_RETURN(const std::string id, required_text(block, "id"));
  LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(block, "name"));
  const auto input = block.find("input");
  if (input && !input->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*input), block.path("input"));
  }
  turn.tool_calls += turn.tool_calls.empty() ? "" : ",";
  turn.tool_calls += "{\"type\":\"function\",\"id\":";
  append_json_string(turn.tool_calls, id);
  turn.tool_calls += ",\"function\":{\"name\":";
  append_json_string(turn.tool_calls, name);
  turn.tool_calls += ",\"arguments\":";
  append_json_string(turn.tool_calls, input ? simdjson::minify(*input) : "{}");
  turn.tool_calls += "}}";
  return {};
}

// A tool's result is a message of its own, before what else the user's turn says.
Status add_tool_result(const FieldReader& block, ChatBody& chat) {
  LEVADA_ASSIGN_OR_RETURN(const std::string id, required_text(block, "tool_use_id"));
  std::string text;
  if (const auto content = block.find("content")) {
    LEVADA_ASSIGN_OR_RETURN(text, text_of_content(*content, block.path("content"), kTextTypes));
  }
  chat.add_tool_result(id, text);
  return {};
}

Status add_block(element value, const std::string& path, const std::string& role, Turn& turn, ChatBody& chat) {
  if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), path);
  const FieldReader block(object_of(value), path + ".");
  LEVADA_ASSIGN_OR_RETURN(const std::string type, required_text(block, "type"));
  const bool assistant = role == "assistant";
  if (type == "text") {
    LEVADA_ASSIGN_OR_RETURN(const std::string text, required_text(block, "text"));
    append_text(text, turn);
    return {};
  }
  if (type == "tool_use" && assistant) return add_tool_use(block, turn);
  if (type == "tool_result" && !assistant) return add_tool_result(block, chat);
  // What the model thought before does not come back: its template drops the thoughts of earlier turns.
  if ((type == "thinking" || type == "redacted_thinking") && assistant) return {};
  return invalid_argument("not supported: a block of type '" + type + "' in a message of the " + role, path + ".type");
}

Status add_message(element value, const std::string& path, ChatBody& chat) {
  if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), path);
  const FieldReader message(object_of(value), path + ".");
  LEVADA_ASSIGN_OR_RETURN(const std::string role, required_text(message, "role"));
  if (role != "user" && role != "assistant") {
    return invalid_argument("must be user or assistant, got '" + role + "'", message.path("role"));
  }
  const auto content = message.find("content");
  if (!content) return invalid_argument("is missing", message.path("content"));
  if (content->is_string()) {
    chat.add_text(role, string_of(*content));
    return {};
  }
  if (!content->is_array()) {
    return invalid_argument("must be a string or a list of blocks, got " + describe_type(*content),
                            message.path("content"));
  }
  Turn turn;
  std::size_t index = 0;
  for (const element block : array_of(*content)) {
    LEVADA_RETURN_IF_ERROR(
        add_block(block, message.path("content") + "[" + std::to_string(index++) + "]", role, turn, chat));
  }
  if (turn.tool_calls.empty()) {
    if (turn.any_text) chat.add_text(role, turn.text);
    return {};
  }
  std::string text = "\"role\":\"assistant\",\"content\":";
  append_json_string(text, turn.text);
  chat.add_message(text + ",\"tool_calls\":[" + turn.tool_calls + "]");
  return {};
}

Status add_messages(const FieldReader& fields, ChatBody& chat) {
  if (const auto system = fields.find("system")) {
    LEVADA_ASSIGN_OR_RETURN(const std::string text, text_of_content(*system, "system", kTextTypes));
    chat.add_text("system", text);
  }
  const auto messages = fields.find("messages");
  if (!messages) return invalid_argument("is missing", "messages");
  if (!messages->is_array()) return invalid_argument("must be a list, got " + describe_type(*messages), "messages");
  std::size_t index = 0;
  for (const element message : array_of(*messages)) {
    LEVADA_RETURN_IF_ERROR(add_message(message, "messages[" + std::to_string(index++) + "]", chat));
  }
  return index > 0 ? Status() : invalid_argument("must hold at least one message", "messages");
}

// Thoughts are a matter of the model's template: its switch is chat_template_kwargs.
Status check_thinking(const FieldReader& fields) {
  const auto thinking = fields.find("thinking");
  if (!thinking) return {};
  if (!thinking->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*thinking), "thinking");
  }
  LEVADA_ASSIGN_OR_RETURN(const std::string type,
                          required_text(FieldReader(object_of(*thinking), "thinking."), "type"));
  if (type == "disabled") return {};
  return invalid_argument("not supported: '" + type + "'; send the template's switch in chat_template_kwargs",
                          "thinking.type");
}

Result<CallSpec> parse(const ParseContext& context, const FieldReader& fields) {
  ChatBody chat;
  LEVADA_RETURN_IF_ERROR(add_messages(fields, chat));
  LEVADA_RETURN_IF_ERROR(refuse_tools(fields));
  LEVADA_RETURN_IF_ERROR(check_thinking(fields));
  chat.copy(fields, "stop_sequences", "stop");
  chat.copy(fields, "max_tokens", "max_tokens");
  chat.copy_common(fields);
  return chat.parse(context, kRenamed);
}

}  // namespace

Result<CallSpec> parse_messages(const ParseContext& context, simdjson::dom::object body) {
  const FieldReader fields(body);
  if (!fields.find("max_tokens")) return invalid_argument("is missing", "max_tokens");
  LEVADA_ASSIGN_OR_RETURN(CallSpec call, parse(context, fields));
  call.dialect = Dialect::kMessages;
  if (!fields.find("rid")) call.id = call.members.front().rid = "msg_" + context.new_id();
  return call;
}

Result<std::string> count_message_tokens(const ModelContext& model, simdjson::dom::object body) {
  const ParseContext context{model, [] { return std::uint64_t{0}; }, [] { return std::string("count"); }, 0};
  LEVADA_ASSIGN_OR_RETURN(const CallSpec call, parse(context, FieldReader(body)));
  return "{\"input_tokens\":" + std::to_string(call.members.front().request.prompt.size()) + "}";
}

}  // namespace levada::serve
