#include "serve/request_envelope.h"

#include <limits>

#include "serve/error.h"

namespace levada::serve {

namespace {

constexpr std::size_t kMaxNameBytes = 256;
constexpr std::size_t kMaxKeyBytes = 4096;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

void read_stream(FieldReader& fields, Envelope& envelope) {
  fields.boolean("stream", &envelope.stream);
  const auto options = fields.find("stream_options");
  if (!options) return;
  if (!options->is_object()) return fields.fail("stream_options", "must be an object");
  FieldReader inner(object_of(*options), "stream_options.");
  inner.boolean("include_usage", &envelope.include_usage);
  fields.fail(inner.status());
}

}  // namespace

Envelope read_envelope(FieldReader& fields) {
  Envelope envelope;
  read_stream(fields, envelope);
  fields.text("extra_key", kMaxKeyBytes, &envelope.cache_namespace.extra_key);
  fields.text("cache_salt", kMaxKeyBytes, &envelope.cache_namespace.cache_salt);
  fields.refuse({"lora_path", "return_hidden_states", "custom_logit_processor", "session_params", "spec_capture"});
  return envelope;
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

Status check_rid(std::string_view rid, const std::string& field) {
  if (rid.empty()) return invalid_argument("must not be empty", field);
  if (rid.size() > kMaxNameBytes) {
    return invalid_argument("is longer than " + std::to_string(kMaxNameBytes) + " bytes", field);
  }
  return {};
}

OutputLimit read_openai_limit(FieldReader& fields) {
  OutputLimit limit;
  fields.integer("max_tokens", 1, kMaxInt32, &limit.max_tokens);
  if (fields.find("max_completion_tokens")) {  // the newer name wins
    limit.field = "max_completion_tokens";
    fields.integer(limit.field, 1, kMaxInt32, &limit.max_tokens);
  }
  fields.integer("min_tokens", 0, kMaxInt32, &limit.min_tokens);
  return limit;
}

core::Request make_request(const ParseContext& context, const Envelope& envelope, std::vector<core::Token> prompt,
                           const core::SamplingParams& sampling) {
  core::Request request;
  request.prompt = std::move(prompt);
  request.sampling = sampling;
  request.cache_namespace = envelope.cache_namespace;
  request.arrival_us = context.arrival_us;
  return request;
}

}  // namespace levada::serve
