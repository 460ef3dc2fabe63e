#include "serve/unserved_fields.h"

#include <algorithm>
#include <array>

namespace levada::serve {

namespace {

using simdjson::dom::element_type;

constexpr unsigned kChat = static_cast<unsigned>(Body::kChat);
constexpr unsigned kCompletion = static_cast<unsigned>(Body::kCompletion);
constexpr unsigned kGenerate = static_cast<unsigned>(Body::kGenerate);
constexpr unsigned kParams = static_cast<unsigned>(Body::kSamplingParams);
constexpr unsigned kStream = static_cast<unsigned>(Body::kStreamOptions);
constexpr unsigned kOpenAi = kChat | kCompletion, kSampling = kOpenAi | kParams, kAll = kOpenAi | kGenerate;

// `neutral`: the values, written as JSON, that ask for what is served anyway; null always is one. Empty: whatever says
// no (false, 0, "", [] and {}).
struct Unserved {
  std::string_view name;
  unsigned bodies;
  std::array<std::string_view, 2> neutral = {};
  std::string_view instead = {};  // what to send
};

constexpr std::string_view kOnlyNull = "null";

constexpr Unserved kUnserved[] = {
    // Several answers, their probabilities.
    {"best_of", kChat, {"1"}},
    {"use_beam_search", kOpenAi},
    {"top_logprobs", kCompletion, {}, "logprobs"},
    {"prompt_logprobs", kOpenAi, {kOnlyNull}},
    {"token_ids_logprob", kGenerate, {kOnlyNull}},
    {"return_hidden_states", kOpenAi},
    {"echo", kChat},
    {"suffix", kOpenAi},
    // Tools.
    {"tools", kCompletion},
    {"tool_choice", kCompletion, {"\"none\"", "\"auto\""}},
    {"functions", kOpenAi},
    {"function_call", kOpenAi, {"\"none\"", "\"auto\""}},
    // Constrained output.
    {"json_schema", kOpenAi, {}, "response_format"},
    {"structural_tag", kOpenAi, {}, "response_format"},
    // Sampling.
    {"stop_regex", kSampling},
    {"bad_words", kOpenAi},
    {"allowed_token_ids", kOpenAi},
    {"custom_logit_processor", kAll},
    {"custom_params", kOpenAi},
    {"include_stop_str_in_output", kOpenAi, {}, "no_stop_trim"},
    // Prompts.
    {"chat_template", kChat},
    {"documents", kChat},
    {"add_generation_prompt", kChat, {"true"}},
    {"truncate_prompt_tokens", kOpenAi, {kOnlyNull}},
    {"input_embeds", kAll},
    {"image_data", kGenerate},
    {"audio_data", kGenerate},
    {"video_data", kGenerate},
    {"modalities", kChat | kGenerate, {R"(["text"])"}},
    {"audio", kChat},
    {"web_search_options", kChat, {kOnlyNull}},
    {"verbosity", kChat, {"\"medium\""}},
    // Around the answer.
    {"continuous_usage_stats", kStream},
    {"lora_path", kAll},
    {"session_params", kAll},
    {"spec_capture", kOpenAi},
    // Another endpoint's names, which would be missed silently.
    {"messages", kCompletion | kGenerate, {}, "/v1/chat/completions"},
    {"prompt", kChat, {}, "messages"},
    {"prompt", kGenerate, {}, "text or input_ids"},
    {"text", kOpenAi, {}, "messages or prompt"},
    {"input_ids", kOpenAi, {}, "token ids as the prompt of /v1/completions"},
    {"sampling_params", kOpenAi, {}, "its fields themselves"},
    {"max_new_tokens", kOpenAi, {kOnlyNull}, "max_tokens"},
    {"min_new_tokens", kOpenAi, {}, "min_tokens"},
    {"max_tokens", kGenerate | kParams, {kOnlyNull}, "sampling_params.max_new_tokens"},
    {"min_tokens", kGenerate | kParams, {}, "sampling_params.min_new_tokens"},
};

bool says_no(simdjson::dom::element value) {
  switch (value.type()) {
    case element_type::NULL_VALUE: return true;
    case element_type::BOOL: return !value.get_bool().value_unsafe();
    case element_type::STRING: return string_of(value).empty();
    case element_type::ARRAY: return array_of(value).size() == 0;
    case element_type::OBJECT: return object_of(value).size() == 0;
    default: return integer_of(value) == 0;
  }
}

bool is_neutral(const Unserved& line, simdjson::dom::element value) {
  if (line.neutral[0].empty()) return says_no(value);
  const auto integer = integer_of(value);  // 1 and 1.0 are one number
  const std::string text = integer ? std::to_string(*integer) : std::string(simdjson::minify(value));
  return std::find(line.neutral.begin(), line.neutral.end(), text) != line.neutral.end();
}

std::string message(const Unserved& line) {
  if (!line.instead.empty()) return "is not a field of this endpoint; send " + std::string(line.instead) + " instead";
  std::string text = "not supported yet: " + std::string(line.name);
  if (line.neutral[0].empty() || line.neutral[0] == kOnlyNull) return text;
  text += " other than " + std::string(line.neutral[0]);
  return line.neutral[1].empty() ? text : text + " or " + std::string(line.neutral[1]);
}

// With tool_choice "none" no tool may be called, so it doesn't matter which there are.
bool switched_off(const FieldReader& fields, std::string_view name) {
  if (name != "tools" && name != "functions") return false;
  const auto choice = fields.peek(name == "tools" ? "tool_choice" : "function_call");
  return choice && choice->is_string() && string_of(*choice) == "none";
}

}  // namespace

void refuse_unserved(FieldReader& fields, Body body) {
  for (const Unserved& line : kUnserved) {
    if ((line.bodies & static_cast<unsigned>(body)) == 0) continue;
    const auto value = fields.peek(line.name);
    if (!value || is_neutral(line, *value)) continue;
    if (switched_off(fields, line.name)) {
      if (!value->is_array()) fields.fail(line.name, "must be a list, got " + describe_type(*value));
      continue;
    }
    fields.fail(line.name, message(line));
  }
}

}  // namespace levada::serve
