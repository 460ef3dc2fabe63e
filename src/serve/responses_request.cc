// The body of /v1/responses as a chat body.
#include "serve/chat_adapter.h"
#include "serve/chat_body.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

constexpr std::string_view kTextTypes[] = {"input_text", "output_text", "text"};
constexpr Renamed kRenamed[] = {{"max_tokens", "max_output_tokens"},
                                {"reasoning_effort", "reasoning.effort"},
                                {"response_format", "text.format"},
                                {"messages", "input"}};

Status add_call(const FieldReader& item, AssistantTurn& turn) {
  LEVADA_ASSIGN_OR_RETURN(const std::string id, required_text(item, "call_id"));
  LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(item, "name"));
  LEVADA_ASSIGN_OR_RETURN(const std::string arguments, required_text(item, "arguments"));
  turn.add_call(id, name, arguments);
  return {};
}

Status add_call_output(const FieldReader& item, ChatBody& chat) {
  LEVADA_ASSIGN_OR_RETURN(const std::string id, required_text(item, "call_id"));
  const auto output = item.find("output");
  if (!output) return invalid_argument("is missing", item.path("output"));
  LEVADA_ASSIGN_OR_RETURN(const std::string text, text_of_content(*output, item.path("output"), kTextTypes));
  chat.add_tool_result(id, text);
  return {};
}

// The assistant's text and the calls that follow it are one turn.
Status add_item(element value, const std::string& path, AssistantTurn& turn, ChatBody& chat) {
  if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), path);
  const FieldReader item(object_of(value), path + ".");
  std::string type = "message";
  if (item.find("type")) {
    LEVADA_ASSIGN_OR_RETURN(type, required_text(item, "type"));
  }
  if (type == "reasoning") return {};  // templates drop the thoughts of earlier turns
  if (type == "function_call") return add_call(item, turn);
  turn.end(chat);
  if (type == "function_call_output") return add_call_output(item, chat);
  if (type != "message") return invalid_argument("not supported: an item of type '" + type + "'", item.path("type"));
  LEVADA_ASSIGN_OR_RETURN(const std::string role, required_text(item, "role"));
  const auto content = item.find("content");
  if (!content) return invalid_argument("is missing", item.path("content"));
  LEVADA_ASSIGN_OR_RETURN(const std::string text, text_of_content(*content, item.path("content"), kTextTypes));
  if (role == "assistant") {
    turn.add_text(text);
  } else {
    chat.add_text(role, text);
  }
  return {};
}

Status add_input(const FieldReader& fields, ChatBody& chat) {
  if (fields.find("instructions")) {
    LEVADA_ASSIGN_OR_RETURN(const std::string text, required_text(fields, "instructions"));
    chat.add_text("system", text);
  }
  const auto input = fields.find("input");
  if (!input) return invalid_argument("is missing; it must be a string or a list of items", "input");
  if (input->is_string()) {
    chat.add_text("user", string_of(*input));
    return {};
  }
  if (!input->is_array()) {
    return invalid_argument("must be a string or a list of items, got " + describe_type(*input), "input");
  }
  std::size_t index = 0;
  AssistantTurn turn;
  for (const element item : array_of(*input)) {
    LEVADA_RETURN_IF_ERROR(add_item(item, "input[" + std::to_string(index++) + "]", turn, chat));
  }
  turn.end(chat);
  return index > 0 ? Status() : invalid_argument("must hold at least one item", "input");
}

// {type: "function", name, description, parameters} as a chat's tool; the others run on OpenAI's own servers.
Result<std::string> tool_json(const FieldReader& tool) {
  LEVADA_ASSIGN_OR_RETURN(const std::string type, required_text(tool, "type"));
  if (type != "function") return invalid_argument("must be function, got '" + type + "'", tool.path("type"));
  LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(tool, "name"));
  return function_tool_json({name, tool.find("description"), tool.find("parameters"), tool.find("strict")});
}

Status add_tool_choice(const FieldReader& fields, ChatBody& chat) {
  chat.copy(fields, "parallel_tool_calls", "parallel_tool_calls");
  const auto value = fields.find("tool_choice");
  if (!value || !value->is_object()) {
    chat.copy(fields, "tool_choice", "tool_choice");
    return {};
  }
  const FieldReader choice(object_of(*value), "tool_choice.");
  LEVADA_ASSIGN_OR_RETURN(const std::string type, required_text(choice, "type"));
  if (type != "function") return invalid_argument("must be function, got '" + type + "'", choice.path("type"));
  LEVADA_ASSIGN_OR_RETURN(const std::string name, required_text(choice, "name"));
  chat.set("tool_choice", named_choice_json(name));
  return {};
}

// text.format {type: "json_schema", name, schema, …} is a chat's response_format with the rest in "json_schema".
Status add_format(const FieldReader& fields, ChatBody& chat) {
  const auto text = fields.find("text");
  if (!text) return {};
  if (!text->is_object()) return invalid_argument("must be an object, got " + describe_type(*text), "text");
  const FieldReader inner(object_of(*text), "text.");
  const auto format = inner.find("format");
  if (!format) return {};
  if (!format->is_object()) return invalid_argument("must be an object, got " + describe_type(*format), "text.format");
  LEVADA_ASSIGN_OR_RETURN(const std::string type,
                          required_text(FieldReader(object_of(*format), "text.format."), "type"));
  const std::string json = simdjson::minify(*format);
  chat.set("response_format", type == "json_schema" ? R"({"type":"json_schema","json_schema":)" + json + "}" : json);
  return {};
}

Status add_reasoning(const FieldReader& fields, ChatBody& chat) {
  const auto reasoning = fields.find("reasoning");
  if (!reasoning) return {};
  if (!reasoning->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*reasoning), "reasoning");
  }
  chat.copy(FieldReader(object_of(*reasoning), "reasoning."), "effort", "reasoning_effort");
  return {};
}

// Answers aren't kept: what refers to earlier ones, or wants to be asked for later, can't be served.
Status refuse_unserved(const FieldReader& fields) {
  for (const std::string_view name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.find(name)) {
      return invalid_argument("not supported: this server keeps no answers; send the whole conversation as input",
                              std::string(name));
    }
  }
  const auto background = fields.find("background");
  if (background && !(background->is_bool() && !background->get_bool().value_unsafe())) {
    return invalid_argument("not supported other than false", "background");
  }
  const auto truncation = fields.find("truncation");
  if (truncation && !(truncation->is_string() && string_of(*truncation) == "disabled")) {
    return invalid_argument("not supported other than \"disabled\"", "truncation");
  }
  constexpr std::size_t kMaxMetadataBytes = 16 << 10;  // it comes back three times in a stream
  const auto metadata = fields.find("metadata");
  if (metadata && (!metadata->is_object() || simdjson::minify(*metadata).size() > kMaxMetadataBytes)) {
    return invalid_argument("must be an object of at most " + std::to_string(kMaxMetadataBytes) + " bytes", "metadata");
  }
  const auto top = fields.find("top_logprobs");
  if (top && integer_of(*top) != 0) return invalid_argument("not supported other than 0", "top_logprobs");
  return {};
}

// What the answer repeats of its request.
std::string repeated(const FieldReader& fields) {
  struct Echoed {
    std::string_view name, otherwise;
  };
  constexpr Echoed kEchoed[] = {{"instructions", "null"},
                                {"max_output_tokens", "null"},
                                {"metadata", "{}"},
                                {"temperature", "1.0"},
                                {"top_p", "1.0"},
                                {"tool_choice", "\"auto\""},
                                {"tools", "[]"},
                                {"parallel_tool_calls", "true"},
                                {"reasoning", R"({"effort":null,"summary":null})"},
                                {"text", R"({"format":{"type":"text"}})"}};
  std::string out;
  for (const Echoed& field : kEchoed) {
    const auto value = fields.find(field.name);
    out += "\"" + std::string(field.name) + "\":" + (value ? simdjson::minify(*value) : std::string(field.otherwise)) +
           ',';
  }
  return out + R"("previous_response_id":null,"store":false,"user":null,"truncation":"disabled",)";
}

}  // namespace

Result<CallSpec> parse_responses(const ParseContext& context, simdjson::dom::object body) {
  const FieldReader fields(body);
  ChatBody chat;
  LEVADA_RETURN_IF_ERROR(refuse_unserved(fields));
  LEVADA_RETURN_IF_ERROR(add_input(fields, chat));
  LEVADA_RETURN_IF_ERROR(set_tools(fields, tool_json, chat));
  LEVADA_RETURN_IF_ERROR(add_tool_choice(fields, chat));
  LEVADA_RETURN_IF_ERROR(add_format(fields, chat));
  LEVADA_RETURN_IF_ERROR(add_reasoning(fields, chat));
  chat.copy(fields, "max_output_tokens", "max_tokens");
  chat.copy_common(fields);
  LEVADA_ASSIGN_OR_RETURN(CallSpec call, chat.parse(context, kRenamed));
  call.dialect = Dialect::kResponses;
  call.repeated = repeated(fields);
  if (!fields.find("rid")) call.id = call.members.front().rid = "resp_" + context.new_id();
  return call;
}

}  // namespace levada::serve
