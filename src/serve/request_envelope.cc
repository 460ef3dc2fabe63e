#include "serve/request_envelope.h"

#include <limits>

#include "serve/error.h"
#include "serve/unserved_fields.h"

namespace levada::serve {

namespace {

constexpr std::size_t kMaxNameBytes = 256;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

std::string id_prefix(Dialect dialect) {
  switch (dialect) {
    case Dialect::kChat: return "chatcmpl-";
    case Dialect::kEmbedding: return "embd-";
    default: return "cmpl-";
  }
}

void read_stream(FieldReader& fields, Envelope& envelope) {
  fields.boolean("stream", &envelope.stream);
  const auto options = fields.find("stream_options");
  if (!options) return;
  if (!options->is_object()) return fields.fail("stream_options", "must be an object, got " + describe_type(*options));
  FieldReader inner(object_of(*options), "stream_options.");
  inner.boolean("include_usage", &envelope.include_usage);
  refuse_unserved(inner, Body::kStreamOptions);
  fields.fail(inner.status());
}

void read_rid(FieldReader& fields, Envelope& envelope) {
  fields.text("rid", kMaxNameBytes, &envelope.rid);
  if (envelope.rid) fields.fail(check_rid(*envelope.rid, "rid"));
}

void check_model(FieldReader& fields, const ModelContext& model) {
  std::optional<std::string> name;
  fields.text("model", kMaxKeyBytes, &name);
  // "default" is what SGLang's own clients send when the user names none.
  if (!name || *name == model.served_name || *name == model.info.path || *name == "default") return;
  fields.fail(model_not_found(*name, model.served_name));
}

OutputLimit read_openai_limit(FieldReader& fields, Dialect dialect) {
  OutputLimit limit;
  bool echo = false;
  if (dialect == Dialect::kCompletion) fields.boolean("echo", &echo);
  fields.integer("max_tokens", echo ? 0 : 1, kMaxInt32, &limit.max_tokens);
  if (fields.find("max_completion_tokens")) {  // the newer name wins
    limit.field = "max_completion_tokens";
    fields.integer(limit.field, 1, kMaxInt32, &limit.max_tokens);
  }
  fields.integer("min_tokens", 0, kMaxInt32, &limit.min_tokens);
  return limit;
}

}  // namespace

Envelope read_envelope(FieldReader& fields, bool lists) {
  Envelope envelope;
  read_stream(fields, envelope);
  // SpecForge's producers give /generate a list of keys, one per prompt: parse_generate() reads those.
  const auto key = fields.find("extra_key");
  if (!lists || !key || !key->is_array()) fields.text("extra_key", kMaxKeyBytes, &envelope.cache_namespace.extra_key);
  fields.integer("priority", std::numeric_limits<std::int32_t>::min(), kMaxInt32, &envelope.priority);
  fields.text("cache_salt", kMaxKeyBytes, &envelope.cache_namespace.cache_salt);
  return envelope;
}

Status check_rid(std::string_view rid, const std::string& field) {
  if (rid.empty()) return invalid_argument("must not be empty", field);
  if (rid.size() > kMaxNameBytes) {
    return invalid_argument("is longer than " + std::to_string(kMaxNameBytes) + " bytes", field);
  }
  return {};
}

core::Request make_request(const ParseContext& context, const Envelope& envelope, std::vector<core::Token> prompt,
                           const core::SamplingParams& sampling) {
  core::Request request;
  request.prompt = std::move(prompt);
  request.sampling = sampling;
  request.cache_namespace = envelope.cache_namespace;
  request.priority = static_cast<std::int32_t>(envelope.priority.value_or(0));
  request.arrival_us = context.arrival_us;
  return request;
}

Result<OpenAiPrelude> read_openai_prelude(const ParseContext& context, Dialect dialect, FieldReader& fields) {
  OpenAiPrelude prelude;
  check_model(fields, context.model);
  prelude.envelope = read_envelope(fields);
  read_rid(fields, prelude.envelope);
  refuse_unserved(fields, dialect == Dialect::kChat ? Body::kChat : Body::kCompletion);
  read_common_sampling(fields, context.model, context.seeds, prelude.sampling);
  prelude.limit = read_openai_limit(fields, dialect);
  LEVADA_RETURN_IF_ERROR(fields.status());
  return prelude;
}

Result<Envelope> read_embedding_envelope(const ParseContext& context, FieldReader& fields) {
  check_model(fields, context.model);
  Envelope envelope = read_envelope(fields);
  read_rid(fields, envelope);
  if (envelope.stream) fields.fail("stream", "embeddings do not stream");
  LEVADA_RETURN_IF_ERROR(fields.status());
  return envelope;
}

CallSpec make_openai_call(const ParseContext& context, Dialect dialect, const Envelope& envelope) {
  CallSpec call;
  call.dialect = dialect;
  call.id = envelope.rid.value_or(id_prefix(dialect) + context.new_id());
  call.model = context.model.served_name;
  call.stream = envelope.stream;
  call.include_usage = envelope.include_usage;
  call.tokenizer = context.model.tokenizer;
  return call;
}

}  // namespace levada::serve
