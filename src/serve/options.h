// What: the server's options; defaults are written here and nowhere else.
// Owner: cli fills it from flags and recipe.
// Thread: immutable after start.
// Invariant: names are SGLang's flag spellings with underscores.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "http/server.h"
#include "serve/openai_compat.h"

namespace levada::serve {

struct Options {
  std::string host = "127.0.0.1";
  std::int64_t port = 30000;              // 0: any free port
  std::string served_model_name;          // empty: the model as the user named it
  std::string api_key;                    // empty: open to all
  std::string admin_api_key;              // empty: api_key guards the administrative endpoints too
  std::string chat_template;              // a Jinja file; empty: the one shipped with the tokenizer
  std::string tool_call_parser = "auto";  // how the model writes tool calls; auto: as its family does; none: not at all
  std::string reasoning_parser = "auto";  // how it marks its reasoning
  std::int64_t max_body_bytes = 64 << 20;           // a larger body is answered with 413
  std::int64_t max_batch_prompts = 1024;            // prompts in one call
  bool enable_return_hidden_states = false;         // off: return_hidden_states is refused
  std::int64_t openai_chat_default_max_tokens = 0;  // of chats that name no limit; 0: the rest of the context
  std::string openai_compat = "none";               // whose form of usage clients expect: none, kimi, glm
  bool openai_normalize_tool_choice = false;        // other dialects' spellings of tool_choice count, too
  // Draft training on live traffic: this share of the finished conversations is kept in segments of this folder, of which the
  // oldest goes when they exceed the bytes. An empty folder: none.
  std::string live_samples_dir;
  double live_samples_rate = 1;
  std::int64_t live_samples_bytes = 64 << 20;
  std::int64_t health_timeout_s = 20;  // /health_generate answers 503 after this long
};

void describe(OptionTable& table, Options& options);

// kInvalidArgument for a key that no client could send: a header carries printable ASCII, and blanks end the key.
Status check_options(const Options& options);

// kInvalidArgument names what there is.
Result<OpenAiCompat> openai_compat_of(const std::string& name);

// Every option of a table by name, its value as JSON and its keys masked, for ServerFacts::arguments.
std::vector<std::pair<std::string, std::string>> arguments_of(const OptionTable& table);

// What the http room needs of them.
http::ServerOptions http_options(const Options& options);

}  // namespace levada::serve
