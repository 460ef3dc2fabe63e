#include "serve/error.h"

#include "http/text.h"
#include "serve/json_text.h"

namespace levada::serve {

namespace {

constexpr const char* kModelField = "model";

}  // namespace

int http_status(const Status& failure) {
  switch (failure.code()) {
    case StatusCode::kOk: return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition: return 400;
    case StatusCode::kUnauthenticated: return 401;
    case StatusCode::kPermissionDenied: return 403;
    case StatusCode::kNotFound: return 404;
    case StatusCode::kAlreadyExists: return 409;
    case StatusCode::kPayloadTooLarge: return 413;
    case StatusCode::kResourceExhausted: return 429;
    case StatusCode::kAborted: return 499;
    case StatusCode::kUnavailable: return 503;
    case StatusCode::kDataLoss:
    case StatusCode::kInternal: return 500;
  }
  return 500;
}

std::string error_body(const Status& failure) {
  const std::string message = failure.field().empty() ? failure.message() : failure.field() + ": " + failure.message();
  std::string body = "{\"error\":{\"message\":";
  append_json_string(body, message);
  body += ",\"type\":\"";
  body += http::error_type(http_status(failure));
  body += "\",\"param\":";
  if (failure.field().empty()) {
    body += "null";
  } else {
    append_json_string(body, failure.field());
  }
  body += ",\"code\":";
  if (failure.code() == StatusCode::kNotFound && failure.field() == kModelField) {
    body += "\"model_not_found\"";
  } else {
    body += std::to_string(http_status(failure));
  }
  body += "}}";
  return body;
}

std::string typed_error_body(const Status& failure) { return "{\"type\":\"error\"," + error_body(failure).substr(1); }

std::string named_error_event(const Status& failure) {
  return "event: error\ndata: " + typed_error_body(failure) + "\n\n";
}

std::string error_event(const Status& failure) { return "data: " + error_body(failure) + "\n\n"; }

void respond_error(const http::Responder& responder, const Status& failure) {
  responder.respond(http_status(failure), "application/json", error_body(failure));
}

Status model_not_found(const std::string& model, const std::string& served) {
  return not_found("the model '" + model + "' does not exist here; this server serves '" + served + "'", kModelField);
}

}  // namespace levada::serve
