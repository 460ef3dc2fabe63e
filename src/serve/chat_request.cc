// The body of /v1/chat/completions: messages through the chat template to one prompt.
#include <algorithm>

#include "serve/chat_messages.h"
#include "serve/guide_fields.h"
#include "serve/json_text.h"
#include "serve/prompt.h"
#include "serve/request_envelope.h"
#include "serve/request_wishes.h"
#include "serve/tool_fields.h"

namespace levada::serve {

namespace {

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

constexpr std::size_t kMaxEffortBytes = 64;

// The client's own variables.
Status append_kwargs(const FieldReader& fields, std::string& inputs) {
  const auto kwargs = fields.find("chat_template_kwargs");
  if (!kwargs) return {};
  if (!kwargs->is_object()) {
    return invalid_argument("must be an object, got " + describe_type(*kwargs), "chat_template_kwargs");
  }
  constexpr std::string_view kOurs[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
  for (const auto [key, value] : object_of(*kwargs)) {
    if (std::find(std::begin(kOurs), std::end(kOurs), key) != std::end(kOurs)) {
      return invalid_argument("is set by the server", "chat_template_kwargs." + std::string(key));
    }
    append_json_string(inputs, key);
    inputs += ':' + simdjson::minify(value) + ',';
  }
  return {};
}

Result<std::string> template_inputs(const ModelContext& model, FieldReader& fields, const std::string& messages,
                                    const std::string& tools) {
  std::string inputs = "{";
  LEVADA_RETURN_IF_ERROR(append_kwargs(fields, inputs));
  std::optional<std::string> reasoning_effort;
  fields.text("reasoning_effort", kMaxEffortBytes, &reasoning_effort);
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (reasoning_effort) {
    inputs += "\"reasoning_effort\":";
    append_json_string(inputs, *reasoning_effort);
    inputs += ',';
  }
  append_special(model, "bos_token", model.tokenizer->bos(), inputs);
  append_special(model, "eos_token", model.tokenizer->eos(), inputs);
  if (!tools.empty()) inputs += "\"tools\":" + tools + ',';
  inputs += "\"add_generation_prompt\":true,\"messages\":" + messages + "}";
  return inputs;
}

struct ChatPrompt {
  std::vector<core::Token> tokens;
  bool reasoning_open = false;  // it ends inside the model's reasoning
};

Result<ChatPrompt> read_prompt(const ModelContext& model, FieldReader& fields, const std::string& tools) {
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
  LEVADA_ASSIGN_OR_RETURN(const std::string inputs, template_inputs(model, fields, conversation.messages, tools));
  const std::size_t limit = max_template_bytes(model);
  if (inputs.size() > limit) {
    return payload_too_large("messages and chat_template_kwargs are " + std::to_string(inputs.size()) +
                                 " bytes of JSON; the limit for this model is " + std::to_string(limit),
                             "messages");
  }
  auto prompt = model.chat_template->render(inputs);
  if (!prompt.ok()) return Status(prompt.status().code(), prompt.status().message(), "messages");
  const std::string text = *prompt + conversation.continued;
  ChatPrompt result;
  LEVADA_ASSIGN_OR_RETURN(result.tokens, prompt_from_text(model, text, "messages",
                                                          false));  // the template writes its own special tokens
  result.reasoning_open = reasoning_is_open(model.replies, text);
  return result;
}

// How the answers are to be read; null: all is content.
Result<std::shared_ptr<const reply::Form>> read_form(const ModelContext& model, FieldReader& fields,
                                                     const ToolWish& tools, bool reasoning_open) {
  bool separate = true;
  fields.boolean("separate_reasoning", &separate);
  LEVADA_RETURN_IF_ERROR(fields.status());
  auto form = std::make_shared<reply::Form>();
  if (separate) form->reasoning = model.replies.reasoning;
  form->reasoning_open = reasoning_open;
  if (!tools.tools.empty()) form->calls = model.replies.calls;
  form->tools = tools.tools;
  if (!form->reasoning && !form->calls) form.reset();
  return std::shared_ptr<const reply::Form>(std::move(form));
}

// The form of the answer's text: what the request asks for, or calls and nothing else.
Result<std::optional<GuideWish>> read_guide(const FieldReader& fields, const ToolWish& tools) {
  LEVADA_ASSIGN_OR_RETURN(std::optional<GuideWish> guide, read_openai_guide(fields));
  if (!tools.forced) return guide;
  if (guide) return invalid_argument("an answer of a form can't be a tool call, too", guide->field);
  return tools.forced;
}

}  // namespace

Result<CallSpec> parse_chat(const ParseContext& context, simdjson::dom::object body) {
  FieldReader fields(body);
  LEVADA_ASSIGN_OR_RETURN(OpenAiPrelude prelude, read_openai_prelude(context, Dialect::kChat, fields));
  const ModelContext& model = context.model;
  const auto format = model.replies.calls.value_or(reply::CallFormat::kHermes);
  LEVADA_ASSIGN_OR_RETURN(const ToolWish tools, read_tools(fields, {format, model.normalize_tool_choice}));
  LEVADA_ASSIGN_OR_RETURN(ChatPrompt prompt, read_prompt(model, fields, tools.listed));
  LEVADA_RETURN_IF_ERROR(
      resolve_limit(model, prelude.limit, prompt.tokens.size(), model.chat_default_max_tokens, prelude.sampling));

  CallSpec call = make_openai_call(context, Dialect::kChat, prelude.envelope);
  call.choices = read_choices(fields);
  LEVADA_ASSIGN_OR_RETURN(call.form, read_form(model, fields, tools, prompt.reasoning_open));
  if (call.form) keep_tags(model.replies, *call.form, *model.tokenizer, prelude.sampling);
  call.call_ids = "call_" + context.new_id();
  core::Request request = make_request(context, prelude.envelope, std::move(prompt.tokens), prelude.sampling);
  request.logprobs = read_chat_logprobs(fields);
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_RETURN_IF_ERROR(add_members(context, std::move(request), call.id, call));
  LEVADA_ASSIGN_OR_RETURN(const auto guide, read_guide(fields, tools));
  call.usage = {model.replies.tokens, model.compat};
  if (call.usage.reasoning) call.usage.reasoning->open = prompt.reasoning_open;
  LEVADA_RETURN_IF_ERROR(add_guides(model, guide, call.usage.reasoning, call.members));
  return call;
}

}  // namespace levada::serve
