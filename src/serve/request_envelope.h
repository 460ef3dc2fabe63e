// What: the fields that several endpoints share around prompt and sampling: model, stream, rid, cache namespace; and
// all that OpenAI's two endpoints have in common.
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

inline constexpr std::size_t kMaxKeyBytes = 4096;  // of extra_key and cache_salt

struct Envelope {
  core::CacheNamespace cache_namespace;
  std::optional<std::string> rid;
  bool stream = false;
  bool include_usage = false;
  std::optional<std::int64_t> priority;
};

// Everything but rid, which /generate reads in its own way. `lists`: extra_key may be a list, which is left alone.
Envelope read_envelope(FieldReader& fields, bool lists = false);
// A name a client may give to a request.
Status check_rid(std::string_view rid, const std::string& field);

core::Request make_request(const ParseContext& context, const Envelope& envelope, std::vector<core::Token> prompt,
                           const core::SamplingParams& sampling);

// What /v1/chat/completions and /v1/completions say beside their prompts.
struct OpenAiPrelude {
  Envelope envelope;
  core::SamplingParams sampling;  // without its limits, which need the prompt's length
  OutputLimit limit;              // max_tokens already merged with max_completion_tokens
};

// Fails with model_not_found if the body names a model that isn't served here, and for fields that `dialect` does not
// serve yet.
Result<OpenAiPrelude> read_openai_prelude(const ParseContext& context, Dialect dialect, FieldReader& fields);
// What /v1/embeddings says beside its input; a stream is refused.
Result<Envelope> read_embedding_envelope(const ParseContext& context, FieldReader& fields);
// A call without members yet; its id is the client's rid or a fresh one.
CallSpec make_openai_call(const ParseContext& context, Dialect dialect, const Envelope& envelope);

}  // namespace levada::serve
