#include "serve/text_routes.h"

#include "serve/chat_adapter.h"
#include "serve/field_reader.h"
#include "serve/json_text.h"
#include "serve/prompt.h"
#include "text/stream_decoder.h"

namespace levada::serve {

namespace {

using simdjson::dom::element;

Status need_tokenizer(const ModelContext& model) {
  if (model.tokenizer != nullptr) return {};
  return Status(StatusCode::kFailedPrecondition, "this server runs without a tokenizer");
}

Result<std::vector<core::Token>> tokens_of(const ModelContext& model, element value, const std::string& field,
                                           bool add_special_tokens) {
  if (!value.is_string()) return invalid_argument("must be a string, got " + describe_type(value), field);
  const std::string_view text = string_of(value);
  LEVADA_RETURN_IF_ERROR(check_text_bytes(model, text.size(), field));
  return model.tokenizer->encode(text, {add_special_tokens, true});
}

// Ids of one text, no more than the context holds: an id is two bytes of a body and may be a hundred of text.
Result<std::vector<core::Token>> id_list(const ModelContext& model, element value, const std::string& field) {
  const auto limit = static_cast<std::size_t>(model.context_length_tokens);
  if (value.is_array()) {
    std::size_t count = 0;
    for ([[maybe_unused]] const element id : array_of(value)) ++count;  // size() saturates
    if (count > limit) {
      return payload_too_large("The input (" + std::to_string(count) +
                                   " tokens) is longer than the model's context length (" + std::to_string(limit) +
                                   " tokens).",
                               field);
    }
  }
  return token_list(model, value, field, limit);
}

std::string text_of(const ModelContext& model, const std::vector<core::Token>& tokens, bool skip_special_tokens) {
  text::StreamDecoder decoder(*model.tokenizer, {}, skip_special_tokens);
  std::string text;
  for (const core::Token token : tokens) decoder.push(token, text);
  decoder.finish(text);
  return text;
}

}  // namespace

Result<std::string> tokenize(const ModelContext& model, simdjson::dom::object body) {
  LEVADA_RETURN_IF_ERROR(need_tokenizer(model));
  FieldReader fields(body);
  bool add_special_tokens = true;
  fields.boolean("add_special_tokens", &add_special_tokens);
  const auto prompt = fields.find("prompt");
  if (!prompt) fields.fail("prompt", "is missing; it must be a string or a list of strings");
  LEVADA_RETURN_IF_ERROR(fields.status());
  std::string tokens, counts;
  const bool list = prompt->is_array();
  const auto add_one = [&](element value, const std::string& field) -> Status {
    LEVADA_ASSIGN_OR_RETURN(const auto ids, tokens_of(model, value, field, add_special_tokens));
    tokens += tokens.empty() ? "[" : ",[";
    append_json_ids(tokens, ids);
    tokens += ']';
    append_json_ids(counts, {static_cast<std::int32_t>(ids.size())});
    return {};
  };
  if (list) {
    std::size_t index = 0;
    for (const element item : array_of(*prompt)) {
      LEVADA_RETURN_IF_ERROR(check_batch_size(model, index + 1, "prompt"));
      LEVADA_RETURN_IF_ERROR(add_one(item, "prompt[" + std::to_string(index++) + "]"));
    }
    tokens = "[" + tokens + "]";
    counts = "[" + counts + "]";
  } else {
    LEVADA_RETURN_IF_ERROR(add_one(*prompt, "prompt"));
  }
  return "{\"tokens\":" + tokens + ",\"count\":" + counts +
         ",\"max_model_len\":" + std::to_string(model.context_length_tokens) + "}";
}

Result<std::string> detokenize(const ModelContext& model, simdjson::dom::object body) {
  LEVADA_RETURN_IF_ERROR(need_tokenizer(model));
  FieldReader fields(body);
  bool skip_special_tokens = true;
  fields.boolean("skip_special_tokens", &skip_special_tokens);
  const auto tokens = fields.find("tokens");
  if (!tokens) fields.fail("tokens", "is missing; it must be a list of token ids or a list of such lists");
  LEVADA_RETURN_IF_ERROR(fields.status());
  const bool batch = tokens->is_array() && array_of(*tokens).size() > 0 && (*array_of(*tokens).begin()).is_array();
  std::string text;
  if (!batch) {
    LEVADA_ASSIGN_OR_RETURN(const auto ids, id_list(model, *tokens, "tokens"));
    append_json_string(text, text_of(model, ids, skip_special_tokens));
    return "{\"text\":" + text + "}";
  }
  std::size_t index = 0;
  for (const element item : array_of(*tokens)) {
    LEVADA_RETURN_IF_ERROR(check_batch_size(model, index + 1, "tokens"));
    LEVADA_ASSIGN_OR_RETURN(const auto ids, id_list(model, item, "tokens[" + std::to_string(index) + "]"));
    if (index++ > 0) text += ',';
    append_json_string(text, text_of(model, ids, skip_special_tokens));
  }
  return "{\"text\":[" + text + "]}";
}

void TextRoutes::register_on(Router& router) {
  add(router, "/tokenize", tokenize);
  add(router, "/detokenize", detokenize);
  add(router, "/v1/messages/count_tokens", count_message_tokens);
}

void TextRoutes::add(Router& router, const char* path, Work work) {
  router.add("POST", path, Access::kUser, [this, work](http::Request request, http::Responder responder) {
    const std::size_t body_bytes = request.body.size();
    const Status taken =
        intake_.submit(body_bytes,
                       [this, work, body = std::move(request.body),
                        responder](simdjson::dom::parser& parser) -> std::function<void()> {
                         if (responder.client_gone()) return nullptr;
                         const auto answer = [&]() -> Result<std::string> {
                           LEVADA_ASSIGN_OR_RETURN(const simdjson::dom::object object, parse_object(parser, body));
                           return work(model_, object);
                         }();
                         if (answer.ok()) {
                           responder.respond(200, "application/json", answer.value());
                         } else {
                           respond_error(responder, answer.status());
                         }
                         return nullptr;
                       });
    if (!taken.ok()) respond_error(responder, taken);
  });
}

}  // namespace levada::serve
