// The body of /v1/embeddings: one input or a batch of them, each a prompt whose last row is the embedding.
#include "serve/prompt.h"
#include "serve/request_envelope.h"
#include "serve/request_wishes.h"

namespace levada::serve {

namespace {

Status read_encoding(FieldReader& fields, CallSpec& call) {
  std::optional<std::string> encoding;
  fields.text("encoding_format", 16, &encoding);
  if (encoding && *encoding != "float" && *encoding != "base64")
    fields.fail("encoding_format", "must be float or base64");
  call.base64 = encoding == "base64";
  std::optional<std::int64_t> dimensions;
  fields.integer("dimensions", 1, call.hidden_size, &dimensions);
  call.dimensions = static_cast<std::int32_t>(dimensions.value_or(0));
  return fields.status();
}

}  // namespace

Result<CallSpec> parse_embedding(const ParseContext& context, simdjson::dom::object body) {
  FieldReader fields(body);
  LEVADA_ASSIGN_OR_RETURN(const Envelope envelope, read_embedding_envelope(context, fields));
  CallSpec call = make_openai_call(context, Dialect::kEmbedding, envelope);
  call.hidden_size = std::max(context.model.info.hidden_size, 1);
  LEVADA_RETURN_IF_ERROR(read_encoding(fields, call));
  const auto input = fields.find("input");
  if (!input) return invalid_argument("is missing", "input");
  LEVADA_ASSIGN_OR_RETURN(Prompts prompts, prompts_from(context.model, *input, "input"));
  core::SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_new_tokens = 0;
  for (auto& prompt : prompts.items) {
    LEVADA_ASSIGN_OR_RETURN(std::vector<core::Token> tokens, std::move(prompt));
    core::Request request = make_request(context, envelope, std::move(tokens), sampling);
    request.hidden = core::HiddenWish::kLastOfPrompt;
    LEVADA_RETURN_IF_ERROR(add_members(context, std::move(request), call.id, call));
  }
  return call;
}

}  // namespace levada::serve
