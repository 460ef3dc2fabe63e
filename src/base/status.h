// What: Status and Result<T>, the only way an operation reports a failure caused from outside (input, file, peer, memory).
// Owner: value types, held by whoever receives them.
// Thread: any.
// Invariant: a failed Status carries a code and a sentence a user can act on; `field` names the offending request field.
// Programmer errors are not Statuses: they end the process through LEVADA_CHECK (base/check.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace levada {

enum class StatusCode : std::uint8_t {
  kOk,
  kInvalidArgument,     // the caller's input is wrong (HTTP 400)
  kUnauthenticated,     // 401
  kPermissionDenied,    // 403
  kNotFound,            // 404
  kAlreadyExists,       // 409: an id that is live already
  kPayloadTooLarge,     // 413: prompt longer than the context, body above the limit
  kResourceExhausted,   // 429 or 503: a queue or pool is full now, may fit later
  kAborted,             // the client or an operator ended it
  kFailedPrecondition,  // refused in the present state, e.g. flush while requests run (400)
  kDataLoss,            // a file is damaged or truncated
  kUnavailable,         // a device, port or peer is not there (503)
  kInternal,            // 500
};

const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string field = {})
      : code_(code), message_(std::move(message)), field_(std::move(field)) {}

  static Status ok_status() { return {}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The request or file field at fault ("max_tokens", "messages[2].role"); empty when no single field is.
  const std::string& field() const { return field_; }
  // "INVALID_ARGUMENT: max_tokens: must be at least 1, got -3"
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string field_;
};

Status invalid_argument(std::string message, std::string field = {});
Status not_found(std::string message, std::string field = {});
Status data_loss(std::string message);
Status unavailable(std::string message);
Status internal_error(std::string message);
Status payload_too_large(std::string message, std::string field = {});
Status resource_exhausted(std::string message);

// A value or the reason why there is none. Reading the value of a failed Result aborts the process.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT: implicit by design
  Result(Status status) : state_(std::move(status)) {  // NOLINT: implicit by design
    LEVADA_CHECK(!std::get<Status>(state_).ok(), "a Result needs a value or a failure");
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() & {
    check();
    return std::get<T>(state_);
  }
  const T& value() const& {
    check();
    return std::get<T>(state_);
  }
  T&& value() && {
    check();
    return std::get<T>(std::move(state_));
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  void check() const { LEVADA_CHECK(ok(), std::get<Status>(state_).to_string().c_str()); }
  std::variant<T, Status> state_;
};

}  // namespace levada

#define LEVADA_CONCAT_INNER(a, b) a##b
#define LEVADA_CONCAT(a, b) LEVADA_CONCAT_INNER(a, b)
#define LEVADA_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                      \
    if (::levada::Status levada_status = (expr); !levada_status.ok()) return levada_status; \
  } while (0)
#define LEVADA_ASSIGN_OR_RETURN(lhs, expr) \
  LEVADA_ASSIGN_OR_RETURN_IMPL(LEVADA_CONCAT(levada_result_, __LINE__), lhs, expr)
#define LEVADA_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result).value()
