// What: a Status as clients see it: HTTP status, JSON error body, SSE error event.
// Owner: pure functions.
// Thread: any.
// Invariant: every failure that leaves the server has the one form {"error": {message, type, param, code}}.
// `code` is the HTTP status, except where OpenAI's clients look for a word: an unknown model is "model_not_found".
// docs/api.md lists the table.
#pragma once

#include <string>

#include "base/status.h"
#include "http/server.h"

namespace levada::serve {

// The HTTP status of a failure. An abort by client or operator is 499, which client libraries don't retry.
int http_status(const Status& failure);
// {"error": {...}}
std::string error_body(const Status& failure);
// {"type": "error", "error": {...}}: the same for clients that look for a type first (/v1/messages).
std::string typed_error_body(const Status& failure);
// data: {"error": {...}}, the last event of a stream that fails; no [DONE] follows it.
std::string error_event(const Status& failure);
// The same as an event named error, with the typed body.
std::string named_error_event(const Status& failure);
void respond_error(const http::Responder& responder, const Status& failure);

// 404 with code model_not_found.
Status model_not_found(const std::string& model, const std::string& served);

}  // namespace levada::serve
