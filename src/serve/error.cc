#include "serve/error.h"

#include "serve/json_text.h"

namespace levada::serve {

namespace {

constexpr const char* kModelField = "model";

const char* type_of(StatusCode code) {
  switch (code) {
    case StatusCode::kUnauthenticated: return "authentication_error";
    case StatusCode::kPermissionDenied: return "permission_error";
    case StatusCode::kNotFound: return "not_found_error";
    case StatusCode::kAlreadyExists: return "conflict_error";
    case StatusCode::kPayloadTooLarge: return "PayloadTooLargeError";  // SGLang's name for it
    case StatusCode::kResourceExhausted: return "rate_limit_error";
    case StatusCode::kAborted: return "aborted";
    case StatusCode::kUnavailable: return "service_unavailable_error";
    case StatusCode::kDataLoss:
    case StatusCode::kInternal: return "internal_server_error";
    default: return "invalid_request_error";
  }
}

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
  body += type_of(failure.code());
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

std::string error_event(const Status& failure) { return "data: " + error_body(failure) + "\n\n"; }

void respond_error(const http::Responder& responder, const Status& failure) {
  responder.respond(http_status(failure), "application/json", error_body(failure));
}

Status model_not_found(const std::string& model, const std::string& served) {
  return not_found("the model '" + model + "' does not exist here; this server serves '" + served + "'", kModelField);
}

}  // namespace levada::serve
