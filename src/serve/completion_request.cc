// The body of /v1/completions: one prompt or a batch of them, each a choice of the answer.
#include "serve/prompt.h"
#include "serve/request_envelope.h"

namespace levada::serve {

namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's

void refuse_later_features(FieldReader& fields) {
  fields.refuse({"echo", "suffix"});
  fields.only_one("best_of");
  // Zero asks for something here: the chosen tokens' logprobs without alternatives.
  if (fields.find("logprobs")) fields.fail("logprobs", "not supported yet: logprobs");
}

}  // namespace

Result<CallSpec> parse_completion(const ParseContext& context, simdjson::dom::object body) {
  FieldReader fields(body);
  check_model(fields, context.model);
  Envelope envelope = read_envelope(fields);
  read_rid(fields, envelope);
  refuse_later_features(fields);
  core::SamplingParams sampling;
  read_common_sampling(fields, context.model, context.seeds, sampling);
  const OutputLimit limit = read_openai_limit(fields);
  const auto prompt = fields.find("prompt");
  if (!prompt) fields.fail("prompt", "is missing");
  LEVADA_RETURN_IF_ERROR(fields.status());
  LEVADA_ASSIGN_OR_RETURN(Prompts prompts, prompts_from(context.model, *prompt, "prompt"));

  CallSpec call;
  call.dialect = Dialect::kCompletion;
  call.id = envelope.rid.value_or("cmpl-" + context.new_id());
  call.model = context.model.served_name;
  call.stream = envelope.stream;
  call.include_usage = envelope.include_usage;
  const bool seeded = fields.find("seed").has_value();
  for (std::vector<core::Token>& tokens : prompts.items) {
    LEVADA_RETURN_IF_ERROR(resolve_limit(context.model, limit, tokens.size(), kDefaultMaxTokens, sampling));
    if (!seeded) sampling.seed = context.seeds();  // equal prompts of a batch must be free to differ
    call.members.push_back({make_request(context, envelope, std::move(tokens), sampling), call.id});
  }
  return call;
}

}  // namespace levada::serve
