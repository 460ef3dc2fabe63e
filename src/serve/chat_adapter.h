// What: the bodies of /v1/responses and /v1/messages, rewritten as chat bodies: one request path serves all three.
// Owner: an intake thread.
// Thread: one call at a time per ParseContext.
// Invariant: what the chat body says of prompts, sampling, tools and constraints is checked by parse_chat() alone; a fault
// it finds is named as the client's own body spells the field.
// Fields: docs/api.md.
#pragma once

#include <string>

#include "serve/request_parser.h"

namespace levada::serve {

Result<CallSpec> parse_responses(const ParseContext& context, simdjson::dom::object body);
Result<CallSpec> parse_messages(const ParseContext& context, simdjson::dom::object body);

// The prompt's length of a /v1/messages body as {"input_tokens": n}; max_tokens may be absent.
Result<std::string> count_message_tokens(const ModelContext& model, simdjson::dom::object body);

}  // namespace levada::serve
