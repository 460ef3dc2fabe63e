#include "base/status.h"

#include <cstdio>
#include <cstdlib>

namespace levada {

void check_failed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why, condition);
  std::abort();
}

const char* to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case StatusCode::kUnauthenticated: return "UNAUTHENTICATED";
    case StatusCode::kPermissionDenied: return "PERMISSION_DENIED";
    case StatusCode::kNotFound: return "NOT_FOUND";
    case StatusCode::kAlreadyExists: return "ALREADY_EXISTS";
    case StatusCode::kPayloadTooLarge: return "PAYLOAD_TOO_LARGE";
    case StatusCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case StatusCode::kAborted: return "ABORTED";
    case StatusCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case StatusCode::kDataLoss: return "DATA_LOSS";
    case StatusCode::kUnavailable: return "UNAVAILABLE";
    case StatusCode::kInternal: return "INTERNAL";
  }
  return "?";
}

std::string Status::to_string() const {
  std::string text = levada::to_string(code_);
  if (!field_.empty()) text += ": " + field_;
  if (!message_.empty()) text += ": " + message_;
  return text;
}

Status invalid_argument(std::string message, std::string field) {
  return {StatusCode::kInvalidArgument, std::move(message), std::move(field)};
}
Status not_found(std::string message, std::string field) {
  return {StatusCode::kNotFound, std::move(message), std::move(field)};
}
Status data_loss(std::string message) { return {StatusCode::kDataLoss, std::move(message)}; }
Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }
Status payload_too_large(std::string message, std::string field) {
  return {StatusCode::kPayloadTooLarge, std::move(message), std::move(field)};
}
Status resource_exhausted(std::string message) { return {StatusCode::kResourceExhausted, std::move(message)}; }

}  // namespace levada
