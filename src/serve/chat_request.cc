// The body of /v1/chat/completions: messages through the chat template to one prompt.
#include "serve/json_text.h"
#include "serve/prompt.h"
#include "serve/request_envelope.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

struct Conversation {
  std::string messages = "[";  // JSON for the template
  std::string continued;       // text of a last assistant message that the answer continues
  std::size_t text_bytes = 0;
};

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
    fields.text("type", 64, &type);
    if (fields.status().ok() && type != "text") {
      return invalid_argument("not supported yet: content of type '" + type.value_or("") + "'; only 'text' is",
                              part_field + ".type");
    }
    fields.text("text", SIZE_MAX, &part_text);
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

Status add_message(element message, const std::string& field, bool continues, Conversation& conversation) {
  if (!message.is_object()) return invalid_argument("must be an object, got " + describe_type(message), field);
  const simdjson::dom::object object = object_of(message);
  FieldReader fields(object, field + ".");
  std::optional<std::string> role;
  fields.text("role", 64, &role);
  if (!role) fields.fail("role", "is missing");
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (*role == "developer") role = "system";  // templates know the older name
  if (!known_role(*role)) {
    return invalid_argument("must be system, developer, user, assistant, tool or function, got '" + *role + "'",
                            field + ".role");
  }
  LEVADA_ASSIGN_OR_RETURN(const std::string content, read_content(fields, *role));
  conversation.text_bytes += content.size();
  if (continues && *role == "assistant") {
    conversation.continued = content;
    return {};
  }
  std::string& out = conversation.messages;
  if (out.size() > 1) out += ',';
  out += "{\"role\":";
  append_json_string(out, *role);
  out += ",\"content\":";
  append_json_string(out, content);
  for (const auto [key, value] : object) {
    if (key == "role" || key == "content") continue;
    out += ',';
    append_json_string(out, key);
    out += ':' + simdjson::minify(value);
  }
  out += '}';
  return {};
}

Result<Conversation> read_messages(FieldReader& fields, bool continue_final) {
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

void append_special(const ModelContext& model, const char* name, std::optional<text::Token> token, std::string& out) {
  if (!token) return;
  out += std::string("\"") + name + "\":";
  append_json_string(out, model.tokenizer->bytes(*token));
  out += ',';
}

// What the template engine is given at most. Its values take many times the bytes of their JSON, and roles, names and
// other fields are not counted as text. Twice leaves room for JSON's escapes; short contexts get the slack.
std::size_t max_template_bytes(const ModelContext& model) {
  constexpr std::size_t kSlackBytes = 64 << 10;
  return 2 * model.max_text_bytes + kSlackBytes;
}

// The template's variables. The client's chat_template_kwargs come first: the engine keeps the last of equal names.
Result<std::string> template_inputs(const ModelContext& model, const FieldReader& fields, const std::string& messages) {
  std::string inputs = "{";
  if (const auto kwargs = fields.find("chat_template_kwargs")) {
    if (!kwargs->is_object()) {
      return invalid_argument("must be an object, got " + describe_type(*kwargs), "chat_template_kwargs");
    }
    for (const auto [key, value] : object_of(*kwargs)) {
      append_json_string(inputs, key);
      inputs += ':' + simdjson::minify(value) + ',';
    }
  }
  append_special(model, "bos_token", model.tokenizer->bos(), inputs);
  append_special(model, "eos_token", model.tokenizer->eos(), inputs);
  inputs += "\"add_generation_prompt\":true,\"messages\":" + messages + "}";
  if (text::find_invalid_utf8(inputs) != std::string::npos) {
    return invalid_argument("holds text that is not valid Unicode", "messages");
  }
  return inputs;
}

Result<std::vector<core::Token>> read_prompt(const ModelContext& model, FieldReader& fields) {
  if (model.tokenizer == nullptr || model.chat_template == nullptr) {
    return invalid_argument("this model has no chat template; give one with --chat-template, or use /v1/completions",
                            "messages");
  }
  bool continue_final = false;
  fields.boolean("continue_final_message", &continue_final);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_ASSIGN_OR_RETURN(const Conversation conversation, read_messages(fields, continue_final));
  // Spares the template engine what can't fit.
  LEVADA_RETURN_IF_ERROR(check_text_bytes(model, conversation.text_bytes, "messages"));
  LEVADA_ASSIGN_OR_RETURN(const std::string inputs, template_inputs(model, fields, conversation.messages));
  const std::size_t limit = max_template_bytes(model);
  if (inputs.size() > limit) {
    return payload_too_large("messages and chat_template_kwargs are " + std::to_string(inputs.size()) +
                                 " bytes of JSON; the limit for this model is " + std::to_string(limit),
                             "messages");
  }
  LEVADA_ASSIGN_OR_RETURN(std::string prompt, model.chat_template->render(inputs));
  prompt += conversation.continued;
  return prompt_from_text(model, prompt, "messages", false);  // the template writes its own special tokens
}

void refuse_later_features(FieldReader& fields) {
  fields.refuse({"logprobs", "top_logprobs", "functions", "audio", "web_search_options"});
  const auto choice = fields.find("tool_choice");
  const bool no_tools = choice && choice->is_string() && string_of(*choice) == "none";
  if (!no_tools) fields.refuse({"tools"});
  const auto format = fields.find("response_format");
  if (!format) return;
  if (!format->is_object()) return fields.fail("response_format", "must be an object");
  FieldReader inner(object_of(*format), "response_format.");
  std::optional<std::string> type;
  inner.text("type", 64, &type);
  if (type != "text") inner.fail("type", "not supported yet: response_format " + type.value_or("without type"));
  fields.fail(inner.status());
}

}  // namespace

Result<CallSpec> parse_chat(const ParseContext& context, simdjson::dom::object body) {
  FieldReader fields(body);
  check_model(fields, context.model);
  Envelope envelope = read_envelope(fields);
  read_rid(fields, envelope);
  refuse_later_features(fields);
  core::SamplingParams sampling;
  read_common_sampling(fields, context.model, context.seeds, sampling);
  const OutputLimit limit = read_openai_limit(fields);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_ASSIGN_OR_RETURN(std::vector<core::Token> prompt, read_prompt(context.model, fields));
  LEVADA_RETURN_IF_ERROR(resolve_limit(context.model, limit, prompt.size(), std::nullopt, sampling));

  CallSpec call;
  call.dialect = Dialect::kChat;
  call.id = envelope.rid.value_or("chatcmpl-" + context.new_id());
  call.model = context.model.served_name;
  call.stream = envelope.stream;
  call.include_usage = envelope.include_usage;
  call.members.push_back({make_request(context, envelope, std::move(prompt), sampling), call.id});
  return call;
}

}  // namespace levada::serve
