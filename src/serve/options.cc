#include "serve/options.h"

#include <algorithm>

#include "serve/json_text.h"
#include "serve/reply_form.h"

namespace levada::serve {

namespace {

constexpr const char* kKeyNames[] = {"api_key", "admin_api_key"};

bool is_secret(const std::string& name) { return std::count(std::begin(kKeyNames), std::end(kKeyNames), name) > 0; }

}  // namespace

void describe(OptionTable& table, Options& options) {
  table.begin_room("serve");
  table.add("host", &options.host, "address to listen on");
  table.add("port", &options.port, "port to listen on; 0 takes any free one").range(0, 65535);
  table.add("served_model_name", &options.served_model_name, "name clients use; default: the model as given");
  table.add("api_key", &options.api_key, "clients must send it as Authorization: Bearer KEY");
  table.add("admin_api_key", &options.admin_api_key, "a separate key for flush, abort and audit");
  table.add("chat_template", &options.chat_template, "a Jinja file used instead of the tokenizer's chat template");
  table.add("tool_call_parser", &options.tool_call_parser,
            "how the model writes tool calls: hermes, llama3, glm45, none; auto: by its family");
  table.add("reasoning_parser", &options.reasoning_parser,
            "how it marks its reasoning: qwen3, glm45, deepseek-r1, kimi, none; auto: by its family");
  table.add("max_body_bytes", &options.max_body_bytes, "largest accepted request body").range(1024, 1 << 30);
  table.add("max_batch_prompts", &options.max_batch_prompts, "most prompts in one request").range(1, 65536);
  table.add("enable_return_hidden_states", &options.enable_return_hidden_states,
            "requests may ask for the hidden states of their tokens");
  table
      .add("openai_chat_default_max_tokens", &options.openai_chat_default_max_tokens,
           "output limit of chats that name none; 0: what is left of the context")
      .range(0, 1 << 30);
  table.add(
      "openai_compat", &options.openai_compat,
      "usage as clients of other makers know it: kimi (cached_tokens), glm (reasoning tokens in every answer), none");
  table.add("openai_normalize_tool_choice", &options.openai_normalize_tool_choice,
            "chat's tool_choice may be spelt as in other dialects: any, {type: tool, name}, {type: auto}, ...");
  table.add(
      "live_samples_dir", &options.live_samples_dir,
      "folder in which finished conversations are kept for draft training, their tokens as they are; default: none are "
      "kept. Requests with the header X-Levada-No-Capture: 1 never are");
  table.add("live_samples_rate", &options.live_samples_rate, "share of the conversations that is kept").range(0, 1);
  table.add("live_samples_bytes", &options.live_samples_bytes, "of that folder; the oldest are deleted beyond")
      .range(65536, 1LL << 40);
  table.add("health_timeout_s", &options.health_timeout_s, "seconds until /health_generate gives up").range(1, 3600);
}

Status check_options(const Options& options) {
  const std::string* const keys[] = {&options.api_key, &options.admin_api_key};
  for (std::size_t i = 0; i < std::size(keys); ++i) {
    const bool sendable = std::all_of(keys[i]->begin(), keys[i]->end(), [](char c) { return c > ' ' && c <= '~'; });
    if (!sendable) {
      return invalid_argument("must be printable ASCII without blanks: no client could send this one", kKeyNames[i]);
    }
  }
  LEVADA_RETURN_IF_ERROR(openai_compat_of(options.openai_compat).status());
  return reply_style(options.tool_call_parser, options.reasoning_parser, nullptr).status();
}

std::vector<std::pair<std::string, std::string>> arguments_of(const OptionTable& table) {
  std::vector<std::pair<std::string, std::string>> arguments;
  for (const OptionTable::Option& option : table.options()) {
    std::string value = option.value();
    if (option.is_text()) {
      const std::string text = is_secret(option.name()) && !value.empty() ? "***" : value;
      value.clear();
      append_json_string(value, text);
    }
    arguments.emplace_back(option.name(), std::move(value));
  }
  return arguments;
}

Result<OpenAiCompat> openai_compat_of(const std::string& name) {
  if (name == "none") return OpenAiCompat::kNone;
  if (name == "kimi") return OpenAiCompat::kKimi;
  if (name == "glm") return OpenAiCompat::kGlm;
  return invalid_argument("must be none, kimi or glm, got '" + name + "'", "openai_compat");
}

http::ServerOptions http_options(const Options& options) {
  http::ServerOptions http;
  http.host = options.host;
  http.port = static_cast<std::uint16_t>(options.port);
  http.max_body_bytes = static_cast<std::size_t>(options.max_body_bytes);
  return http;
}

}  // namespace levada::serve
