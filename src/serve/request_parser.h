// What: the request bodies that ask for generation or an embedding, parsed into a CallSpec.
// Owner: an intake thread.
// Thread: one call at a time per ParseContext.
// Invariant: law 11: what comes out can't fail in the scheduler for a reason that lies in the body.
// A field that is unknown is ignored; one that is known, asked for and not served yet is a 400 that names it.
#pragma once

#include <simdjson.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "serve/call_spec.h"
#include "serve/field_reader.h"
#include "serve/model_context.h"
#include "serve/sampling_fields.h"

namespace levada::serve {

struct ParseContext {
  const ModelContext& model;
  SeedSource seeds;
  std::function<std::string()> new_id;  // a fresh unguessable word
  std::int64_t arrival_us = 0;
};

Result<CallSpec> parse_chat(const ParseContext& context, simdjson::dom::object body);
Result<CallSpec> parse_completion(const ParseContext& context, simdjson::dom::object body);
Result<CallSpec> parse_embedding(const ParseContext& context, simdjson::dom::object body);
Result<CallSpec> parse_generate(const ParseContext& context, simdjson::dom::object body);

}  // namespace levada::serve
