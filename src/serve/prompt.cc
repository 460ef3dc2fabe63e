#include "serve/prompt.h"

#include <algorithm>

#include "serve/field_reader.h"

namespace levada::serve {

namespace {

// The bytes that Unicode normalization may shrink into one: three Hangul jamo of three bytes become one syllable of
// three.
constexpr std::size_t kNormalizationShrink = 4;

Result<core::Token> token_from(const ModelContext& context, simdjson::dom::element element, const std::string& field) {
  std::int64_t id;
  if (element.get_int64().get(id) != simdjson::SUCCESS) {
    return invalid_argument("token ids must be integers, got " + describe_type(element), field);
  }
  if (id < 0 || id >= context.info.vocab_size) {
    return invalid_argument("token id " + std::to_string(id) + " is outside the vocabulary [0, " +
                                std::to_string(context.info.vocab_size) + ")",
                            field);
  }
  return static_cast<core::Token>(id);
}

Status check_text(const ModelContext& context, std::string_view text, const std::string& field) {
  if (context.tokenizer == nullptr) {
    return invalid_argument("this server runs without a tokenizer; send token ids", field);
  }
  if (text.empty()) return invalid_argument("must not be empty", field);
  return check_text_bytes(context, text.size());
}

Status check_count(const ModelContext& context, std::size_t tokens, const std::string& field) {
  if (tokens == 0) return invalid_argument("must hold at least one token", field);
  return context.check_fits(static_cast<std::int32_t>(tokens));
}

Result<std::vector<core::Token>> prompt_from_either(const ModelContext& context, simdjson::dom::element value,
                                                    const std::string& field) {
  if (value.is_string()) return prompt_from_string(context, value, field);
  if (value.is_array()) return prompt_from_ids(context, value, field);
  return invalid_argument("must be a string or a list of token ids, got " + describe_type(value), field);
}

}  // namespace

Status check_text_bytes(const ModelContext& context, std::size_t bytes, const std::string& field) {
  if (bytes <= context.max_text_bytes) return {};
  return payload_too_large("The input (" + std::to_string(bytes) +
                               " bytes) is longer than the model's context length (" +
                               std::to_string(context.context_length_tokens) + " tokens).",
                           field);
}

Status check_batch_size(const ModelContext& context, std::size_t items, const std::string& field) {
  if (static_cast<std::int64_t>(items) <= context.max_batch_prompts) return {};
  return invalid_argument("holds more than " + std::to_string(context.max_batch_prompts) + " prompts", field);
}

std::size_t longest_fitting_text_bytes(const text::Tokenizer& tokenizer, std::int32_t context_length_tokens) {
  std::size_t longest = 1;
  for (text::Token id = 0; id < tokenizer.vocab_size(); ++id) longest = std::max(longest, tokenizer.bytes(id).size());
  return longest * kNormalizationShrink * static_cast<std::size_t>(context_length_tokens);
}

Result<std::vector<core::Token>> prompt_from_text(const ModelContext& context, std::string_view text,
                                                  const std::string& field, bool add_special_tokens) {
  LEVADA_RETURN_IF_ERROR(check_text(context, text, field));
  std::vector<core::Token> tokens = context.tokenizer->encode(text, {add_special_tokens, true});
  LEVADA_RETURN_IF_ERROR(check_count(context, tokens.size(), field));
  return tokens;
}

Result<std::vector<core::Token>> prompt_from_string(const ModelContext& context, simdjson::dom::element text,
                                                    const std::string& field) {
  if (!text.is_string()) return invalid_argument("must be a string, got " + describe_type(text), field);
  return prompt_from_text(context, string_of(text), field, true);
}

Result<std::vector<core::Token>> token_list(const ModelContext& context, simdjson::dom::element ids,
                                            const std::string& field, std::size_t max_count) {
  if (!ids.is_array()) return invalid_argument("must be a list of token ids, got " + describe_type(ids), field);
  std::vector<core::Token> tokens;
  for (const simdjson::dom::element element : array_of(ids)) {
    if (tokens.size() == max_count) {
      return invalid_argument("holds more than " + std::to_string(max_count) + " ids", field);
    }
    LEVADA_ASSIGN_OR_RETURN(const core::Token token, token_from(context, element, field));
    tokens.push_back(token);
  }
  return tokens;
}

Result<std::vector<core::Token>> prompt_from_ids(const ModelContext& context, simdjson::dom::element ids,
                                                 const std::string& field) {
  constexpr std::size_t kNoLimit = INT32_MAX;  // check_fits gives the answer that names the context
  LEVADA_ASSIGN_OR_RETURN(std::vector<core::Token> tokens, token_list(context, ids, field, kNoLimit));
  LEVADA_RETURN_IF_ERROR(check_count(context, tokens.size(), field));
  return tokens;
}

Result<Prompts> prompts_from(const ModelContext& context, simdjson::dom::element value, const std::string& field) {
  Prompts prompts;
  if (value.is_array()) {
    const simdjson::dom::array list = array_of(value);
    if (list.size() == 0) return invalid_argument("must not be empty", field);
    const simdjson::dom::element first = *list.begin();
    prompts.batch = first.is_string() || first.is_array();
  }
  if (!prompts.batch) {
    prompts.items.push_back(prompt_from_either(context, value, field));
    return prompts;
  }
  for (const simdjson::dom::element item : array_of(value)) {
    LEVADA_RETURN_IF_ERROR(check_batch_size(context, prompts.items.size() + 1, field));
    const std::string item_field = field + "[" + std::to_string(prompts.items.size()) + "]";
    prompts.items.push_back(prompt_from_either(context, item, item_field));
  }
  return prompts;
}

}  // namespace levada::serve
