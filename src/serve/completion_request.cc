// The body of /v1/completions: one prompt or a batch of them, each a choice of the answer.
#include "serve/guide_fields.h"
#include "serve/prompt.h"
#include "serve/request_envelope.h"
#include "serve/request_wishes.h"

namespace levada::serve {

namespace {

constexpr std::int64_t kOpenaiMaxTokens = 16;

// best_of: so many choices are made of each prompt, the n most probable are told.
Status read_best_of(FieldReader& fields, CallSpec& call) {
  const auto told = static_cast<std::int64_t>(call.choices);
  std::optional<std::int64_t> made;
  fields.integer("best_of", 1, kMaxChoices, &made);
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (!made || *made == told) return {};
  if (*made < told) return invalid_argument("must be at least n, " + std::to_string(told), "best_of");
  if (call.stream) return invalid_argument("beyond n can't be streamed: the best are known at the end", "best_of");
  call.best = call.choices;
  call.choices = static_cast<std::size_t>(*made);
  return {};
}

}  // namespace

Result<CallSpec> parse_completion(const ParseContext& context, simdjson::dom::object body) {
  FieldReader fields(body);
  LEVADA_ASSIGN_OR_RETURN(OpenAiPrelude prelude, read_openai_prelude(context, Dialect::kCompletion, fields));
  const auto prompt = fields.find("prompt");
  if (!prompt) return invalid_argument("is missing", "prompt");
  LEVADA_ASSIGN_OR_RETURN(Prompts prompts, prompts_from(context.model, *prompt, "prompt"));

  CallSpec call = make_openai_call(context, Dialect::kCompletion, prelude.envelope);
  call.choices = read_choices(fields);
  LEVADA_RETURN_IF_ERROR(read_best_of(fields, call));
  call.usage = {context.model.replies.tokens, context.model.compat};
  fields.boolean("echo", &call.echo);
  auto logprobs = read_completion_logprobs(fields, call.echo);
  LEVADA_RETURN_IF_ERROR(fields.status());
  if (call.best > 0 && !logprobs) {
    logprobs.emplace();
    call.only_ranked = true;
  }
  const bool seeded = fields.find("seed").has_value();
  for (auto& prompt : prompts.items) {
    LEVADA_ASSIGN_OR_RETURN(std::vector<core::Token> tokens, std::move(prompt));
    core::SamplingParams& sampling = prelude.sampling;
    LEVADA_RETURN_IF_ERROR(resolve_limit(context.model, prelude.limit, tokens.size(), kOpenaiMaxTokens, sampling));
    if (!seeded) sampling.seed = context.seeds();  // equal prompts of a batch must be free to differ
    core::Request request = make_request(context, prelude.envelope, std::move(tokens), sampling);
    request.logprobs = logprobs;
    LEVADA_RETURN_IF_ERROR(add_members(context, std::move(request), call.id, call));
  }
  LEVADA_ASSIGN_OR_RETURN(const auto guide, read_openai_guide(fields));
  LEVADA_RETURN_IF_ERROR(add_guides(context.model, guide, {}, call.members));
  return call;
}

}  // namespace levada::serve
