// What: Error and Outcome<T>, how a registry operation answers: a typed reply, or a code of the fan-out protocol.
// Owner: values.
// Thread: any.
// Invariant: one code has one meaning, one wire name and one HTTP status (docs/formats/registry.md lists them). "Nothing
// is ready yet" is not an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace levada::fanout {

enum class ErrorCode : std::uint8_t {
  kBadRequest,         // 400
  kUnauthenticated,    // 401
  kRole,               // 403: a consumer's token on a producer's operation
  kUnknownConsumer,    // 404: not one of the run's consumers, or an unknown operation or position
  kContractMismatch,   // 409: another capture contract
  kPlanMismatch,       // 409: another plan, window or recipe
  kSessionFenced,      // 409: a newer session of this consumer exists, or this one expired
  kEpochFenced,        // 409: the registry restarted: register again
  kOpConflict,         // 409: this op number was used with another body
  kOpStale,            // 409: an op number older than the last one
  kOpGap,              // 409: an op number was skipped
  kCursorConflict,     // 409: not the stored cursor or step; nothing moved
  kOutOfWindow,        // 409
  kDuplicateConsumer,  // 409: another live session with another nonce
  kConsumerCompleted,  // 409: this consumer has completed, for good
  kConsumerFailed,     // 409: this consumer has failed, for good; carries why
  kLeaseLost,          // 410
  kStaleGeneration,    // 410: what was written under it must be removed
  kLimit,              // 422: more bytes than were reserved, or a limit of the run
  kBusy,               // 429, retryable
  kDraining,           // 503
  kUnavailable,        // 503, retryable: the registry cannot be reached or cannot write; the call may have happened
  kCaptureFailed,      // 500: one position cannot be captured
  kRunFailed,          // 500: the whole run has failed, with its reason
};

// "CURSOR_CONFLICT"
std::string_view to_string(ErrorCode code);
std::optional<ErrorCode> error_code_named(std::string_view name);
int http_status_of(ErrorCode code);
// The same call may be sent again unchanged and can succeed.
bool is_retryable(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kBadRequest;
  std::string message;
};

template <class T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T reply) : state_(std::in_place_index<0>, std::move(reply)) {}      // NOLINT: implicit by design
  Outcome(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  // REQUIRES: !ok().
  const Error& error() const {
    LEVADA_CHECK(!ok(), "a reply has no error");
    return std::get<1>(state_);
  }
  // REQUIRES: ok().
  T& operator*() {
    LEVADA_CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  const T& operator*() const {
    LEVADA_CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  const char* error_text() const { return ok() ? "" : std::get<1>(state_).message.c_str(); }
  std::variant<T, Error> state_;
};

}  // namespace levada::fanout
