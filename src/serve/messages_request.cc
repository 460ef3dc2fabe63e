// The body of /v1/messages (Anthropic's form) as a chat body.
#include "serve/chat_adapter.h"
#include "serve/chat_body.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

constexpr std::string_view kTextTypes[] = {"text"};
constexpr Renamed kRenamed[] = {{"stop", "stop_sequences"}};

Status add_tool_use(const FieldReader& block, AssistantTurn& turn) {
  LEVADA_ASSIGN_OR_RETURN(const std::string id, required_text(block, "id"));
  LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(block, "name"));
  const auto input = block.find("input");
  if (input && !input->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*input), block.path("input"));
  }
  turn.add_call(id, name, input ? simdjson::minify(*input) : "{}");
  return {};
}

// What a user's blocks say, joined as a chat's parts are.
struct Spoken {
  std::string text;
  bool any = false;
};

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

Status add_block(element value, const std::string& path, const std::string& role, AssistantTurn& turn, Spoken& spoken,
                 ChatBody& chat) {
  if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), path);
  const FieldReader block(object_of(value), path + ".");
  LEVADA_ASSIGN_OR_RETURN(const std::string type, required_text(block, "type"));
  const bool assistant = role == "assistant";
  if (type == "text") {
    LEVADA_ASSIGN_OR_RETURN(const std::string text, required_text(block, "text"));
    if (assistant) {
      turn.add_text(text);
    } else {
      spoken.text += (spoken.any ? " " : "") + text;
      spoken.any = true;
    }
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
  AssistantTurn turn;
  Spoken spoken;
  std::size_t index = 0;
  for (const element block : array_of(*content)) {
    LEVADA_RETURN_IF_ERROR(
        add_block(block, message.path("content") + "[" + std::to_string(index++) + "]", role, turn, spoken, chat));
  }
  turn.end(chat);
  if (spoken.any) chat.add_text(role, spoken.text);
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

// {name, description, input_schema} as a chat's tool; those that Anthropic's own servers run have a type.
Result<std::string> tool_json(const FieldReader& tool) {
  const auto type = tool.find("type");
  if (type && !(type->is_string() && string_of(*type) == "custom")) {
    return invalid_argument("not supported other than custom: " + simdjson::minify(*type), tool.path("type"));
  }
  LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(tool, "name"));
  const auto schema = tool.find("input_schema");
  if (schema && !schema->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*schema), tool.path("input_schema"));
  }
  return function_tool_json({name, tool.find("description"), schema, {}});
}

Status add_tool_choice(const FieldReader& fields, ChatBody& chat) {
  const auto value = fields.find("tool_choice");
  if (!value) return {};
  if (!value->is_object()) return invalid_argument("must be an object, got " + describe_type(*value), "tool_choice");
  FieldReader choice(object_of(*value), "tool_choice.");
  LEVADA_ASSIGN_OR_RETURN(const std::string type, required_text(choice, "type"));
  bool one = false;
  choice.boolean("disable_parallel_tool_use", &one);
  LEVADA_RETURN_IF_ERROR(choice.status());
  if (one) chat.set("parallel_tool_calls", "false");
  if (type == "tool") {
    LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(choice, "name"));
    chat.set("tool_choice", named_choice_json(name));
    return {};
  }
  if (type != "auto" && type != "any" && type != "none") {
    return invalid_argument("must be auto, any, tool or none, got '" + type + "'", "tool_choice.type");
  }
  chat.set_text("tool_choice", type == "any" ? "required" : type);
  return {};
}

// How long the model thinks is a matter of the model; whether it does, of its template, whose usual switch is this one.
// The client's own chat_template_kwargs win.
Status add_thinking(const ModelContext& model, const FieldReader& fields, ChatBody& chat) {
  const auto thinking = fields.find("thinking");
  if (!thinking) return {};
  if (!thinking->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*thinking), "thinking");
  }
  LEVADA_ASSIGN_OR_RETURN(const std::string type,
                          required_text(FieldReader(object_of(*thinking), "thinking."), "type"));
  const bool enabled = type == "enabled", disabled = type == "disabled";
  if (!enabled && !disabled && type != "adaptive") {
    return invalid_argument("must be enabled, disabled or adaptive, got '" + type + "'", "thinking.type");
  }
  if (enabled && !model.replies.reasoning) {
    return invalid_argument("the served model does not think", "thinking.type");
  }
  if ((enabled || disabled) && !fields.find("chat_template_kwargs")) {
    chat.set("chat_template_kwargs", std::string("{\"enable_thinking\":") + (enabled ? "true" : "false") + "}");
  }
  return {};
}

Result<CallSpec> parse(const ParseContext& context, const FieldReader& fields) {
  ChatBody chat;
  LEVADA_RETURN_IF_ERROR(add_messages(fields, chat));
  LEVADA_RETURN_IF_ERROR(set_tools(fields, tool_json, chat));
  LEVADA_RETURN_IF_ERROR(add_tool_choice(fields, chat));
  LEVADA_RETURN_IF_ERROR(add_thinking(context.model, fields, chat));
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
  call.call_ids = "toolu_" + context.new_id();
  if (!fields.find("rid")) call.id = call.members.front().rid = "msg_" + context.new_id();
  return call;
}

Result<std::string> count_message_tokens(const ModelContext& model, simdjson::dom::object body) {
  const ParseContext context{model, [] { return std::uint64_t{0}; }, [] { return std::string("count"); }, 0};
  LEVADA_ASSIGN_OR_RETURN(const CallSpec call, parse(context, FieldReader(body)));
  return "{\"input_tokens\":" + std::to_string(call.members.front().request.prompt.size()) + "}";
}

}  // namespace levada::serve
