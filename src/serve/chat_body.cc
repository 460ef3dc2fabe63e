#include "serve/chat_body.h"

#include <algorithm>

#include "serve/json_text.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

constexpr std::string_view kCommon[] = {"model",
                                        "stream",
                                        "temperature",
                                        "top_p",
                                        "top_k",
                                        "min_p",
                                        "seed",
                                        "frequency_penalty",
                                        "min_tokens",
                                        "presence_penalty",
                                        "repetition_penalty",
                                        "ignore_eos",
                                        "stop_token_ids",
                                        "no_stop_trim",
                                        "spec_full_blocks",
                                        "skip_special_tokens",
                                        "logit_bias",
                                        "rid",
                                        "priority",
                                        "extra_key",
                                        "cache_salt",
                                        "separate_reasoning",
                                        "regex",
                                        "ebnf",
                                        "chat_template_kwargs",
                                        "lora_path",
                                        "session_params",
                                        "custom_logit_processor"};

// "max_tokens" inside a message of parse_chat() or as a whole path. Tools of these dialects are flat.
std::string in_clients_words(std::string_view path, std::span<const Renamed> renamed) {
  constexpr std::string_view kNested = ".function";
  if (const std::size_t at = path.find(kNested); path.starts_with("tool") && at != std::string_view::npos) {
    return std::string(path.substr(0, at)) + std::string(path.substr(at + kNested.size()));
  }
  for (const Renamed& name : renamed) {
    const bool whole = path == name.chat;
    const bool inside = path.starts_with(name.chat) && (path[name.chat.size()] == '.' || path[name.chat.size()] == '[');
    if (whole || inside) return std::string(name.client) + std::string(path.substr(name.chat.size()));
  }
  return std::string(path);
}

}  // namespace

void ChatBody::set(std::string_view name, std::string_view json) {
  if (json.empty()) return;
  fields_ += fields_.empty() ? "" : ",";
  append_json_string(fields_, name);
  fields_ += ':';
  fields_ += json;
}

void ChatBody::set_text(std::string_view name, std::string_view text) {
  std::string json;
  append_json_string(json, text);
  set(name, json);
}

void ChatBody::copy(const FieldReader& fields, std::string_view client, std::string_view chat) {
  if (const auto value = fields.find(client)) set(chat, simdjson::minify(*value));
}

void ChatBody::copy_common(const FieldReader& fields) {
  for (const std::string_view name : kCommon) copy(fields, name, name);
}

void ChatBody::add_message(std::string_view fields) {
  messages_ += messages_.empty() ? "{" : ",{";
  messages_ += fields;
  messages_ += '}';
}

void ChatBody::add_text(std::string_view role, std::string_view text) {
  std::string message = "\"role\":";
  append_json_string(message, role);
  message += ",\"content\":";
  append_json_string(message, text);
  add_message(message);
}

void ChatBody::add_tool_result(std::string_view id, std::string_view text) {
  std::string message = "\"role\":\"tool\",\"tool_call_id\":";
  append_json_string(message, id);
  message += ",\"content\":";
  append_json_string(message, text);
  add_message(message);
}

Result<CallSpec> ChatBody::parse(const ParseContext& context, std::span<const Renamed> renamed) const {
  simdjson::dom::parser parser;
  const std::string body = "{" + fields_ + (fields_.empty() ? "" : ",") + "\"messages\":[" + messages_ + "]}";
  LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object object, parse_object(parser, body));
  const FieldWitness::Refining refining;
  auto call = parse_chat(context, object);
  if (call.ok()) return call;
  const Status& fault = call.status();
  return Status(fault.code(), fault.message(), in_clients_words(fault.field(), renamed));
}

void AssistantTurn::add_text(std::string_view text) {
  if (any_text_) text_ += ' ';
  any_text_ = true;
  text_ += text;
}

void AssistantTurn::add_call(std::string_view id, std::string_view name, std::string_view arguments) {
  calls_ += calls_.empty() ? "" : ",";
  calls_ += "{\"type\":\"function\",\"id\":";
  append_json_string(calls_, id);
  calls_ += ",\"function\":{\"name\":";
  append_json_string(calls_, name);
  calls_ += ",\"arguments\":";
  append_json_string(calls_, arguments);
  calls_ += "}}";
}

void AssistantTurn::end(ChatBody& chat) {
  if (!calls_.empty()) {
    std::string message = "\"role\":\"assistant\",\"content\":";
    append_json_string(message, text_);
    chat.add_message(message + ",\"tool_calls\":[" + calls_ + "]");
  } else if (any_text_) {
    chat.add_text("assistant", text_);
  }
  *this = {};
}

std::string function_tool_json(const FunctionTool& tool) {
  std::string json = R"({"type":"function","function":{"name":)";
  append_json_string(json, tool.name);
  const auto add = [&](const char* name, const std::optional<element>& value) {
    if (value) json += std::string(",\"") + name + "\":" + simdjson::minify(*value);
  };
  add("description", tool.description);
  add("parameters", tool.parameters);
  add("strict", tool.strict);
  return json + "}}";
}

Status set_tools(const FieldReader& fields, Result<std::string> (*tool_json)(const FieldReader& tool), ChatBody& chat) {
  const auto tools = fields.find("tools");
  if (!tools) return {};
  if (!tools->is_array()) return invalid_argument("must be a list, got " + describe_type(*tools), "tools");
  std::string list;
  std::size_t index = 0;
  for (const element value : array_of(*tools)) {
    const std::string path = "tools[" + std::to_string(index++) + "]";
    if (!value.is_object()) return invalid_argument("must be an object, got " + describe_type(value), path);
    LEVADA_ASSIGN_OR_RETURN(const std::string tool, tool_json(FieldReader(object_of(value), path + ".")));
    list += (list.empty() ? "" : ",") + tool;
  }
  chat.set("tools", "[" + list + "]");
  return {};
}

std::string named_choice_json(std::string_view name) {
  std::string json = R"({"type":"function","function":{"name":)";
  append_json_string(json, name);
  return json + "}}";
}

Result<std::string> required_text(const FieldReader& fields, std::string_view name) {
  const auto value = fields.find(name);
  if (!value) return invalid_argument("is missing", fields.path(name));
  if (!value->is_string()) return invalid_argument("must be a string, got " + describe_type(*value), fields.path(name));
  return std::string(string_of(*value));
}

Result<std::string> text_of_content(element content, const std::string& field,
                                    std::span<const std::string_view> types) {
  if (content.is_string()) return std::string(string_of(content));
  if (!content.is_array()) {
    return invalid_argument("must be a string or a list of text parts, got " + describe_type(content), field);
  }
  std::string text;
  std::size_t index = 0;
  for (const element part : array_of(content)) {
    const std::string path = field + "[" + std::to_string(index++) + "]";
    if (!part.is_object()) return invalid_argument("must be an object, got " + describe_type(part), path);
    const FieldReader fields(object_of(part), path + ".");
    LEVADA_ASSIGN_OR_RETURN(const std::string type, required_text(fields, "type"));
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      return invalid_argument("not supported: content of type '" + type + "'; text is", path + ".type");
    }
    LEVADA_ASSIGN_OR_RETURN(const std::string part_text, required_text(fields, "text"));
    if (index > 1) text += ' ';
    text += part_text;
  }
  return text;
}

}  // namespace levada::serve
