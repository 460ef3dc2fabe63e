// What: the fields that several endpoints share around prompt and sampling: model, stream, rid, cache namespace.
// Owner: request parsers.
// Thread: theirs.
// Invariant: none beyond request_parser.h.
// Private to the request parsers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/request_parser.h"

namespace levada::serve {

struct Envelope {
  core::CacheNamespace cache_namespace;
  std::optional<std::string> rid;
  bool stream = false;
  bool include_usage = false;
};

// Everything but rid, which /generate reads in its own way.
Envelope read_envelope(FieldReader& fields);
void read_rid(FieldReader& fields, Envelope& envelope);
// Fails with model_not_found if the body names a model that isn't served here.
void check_model(FieldReader& fields, const ModelContext& model);
// A name a client may give to a request.
Status check_rid(std::string_view rid, const std::string& field);

// The OpenAI spellings of the output limits, max_tokens already merged with max_completion_tokens.
OutputLimit read_openai_limit(FieldReader& fields);

core::Request make_request(const ParseContext& context, const Envelope& envelope, std::vector<core::Token> prompt,
                           const core::SamplingParams& sampling);

}  // namespace levada::serve
