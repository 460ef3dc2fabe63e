#include "fanout/error.h"

#include <array>

namespace levada::fanout {

namespace {

struct Code {
  ErrorCode code;
  std::string_view name;
  int http_status;
};

constexpr std::array kCodes = {
    Code{ErrorCode::kBadRequest, "BAD_REQUEST", 400},
    Code{ErrorCode::kUnauthenticated, "UNAUTHENTICATED", 401},
    Code{ErrorCode::kRole, "ROLE", 403},
    Code{ErrorCode::kUnknownConsumer, "UNKNOWN_CONSUMER", 404},
    Code{ErrorCode::kContractMismatch, "CONTRACT_MISMATCH", 409},
    Code{ErrorCode::kPlanMismatch, "PLAN_MISMATCH", 409},
    Code{ErrorCode::kSessionFenced, "SESSION_FENCED", 409},
    Code{ErrorCode::kEpochFenced, "EPOCH_FENCED", 409},
    Code{ErrorCode::kOpConflict, "OP_CONFLICT", 409},
    Code{ErrorCode::kOpStale, "OP_STALE", 409},
    Code{ErrorCode::kOpGap, "OP_GAP", 409},
    Code{ErrorCode::kCursorConflict, "CURSOR_CONFLICT", 409},
    Code{ErrorCode::kOutOfWindow, "OUT_OF_WINDOW", 409},
    Code{ErrorCode::kDuplicateConsumer, "DUPLICATE_CONSUMER", 409},
    Code{ErrorCode::kConsumerCompleted, "CONSUMER_COMPLETED", 409},
    Code{ErrorCode::kConsumerFailed, "CONSUMER_FAILED", 409},
    Code{ErrorCode::kLeaseLost, "LEASE_LOST", 410},
    Code{ErrorCode::kStaleGeneration, "STALE_GENERATION", 410},
    Code{ErrorCode::kLimit, "LIMIT", 422},
    Code{ErrorCode::kBusy, "BUSY", 429},
    Code{ErrorCode::kDraining, "DRAINING", 503},
    Code{ErrorCode::kUnavailable, "UNAVAILABLE", 503},
    Code{ErrorCode::kCaptureFailed, "CAPTURE_FAILED", 500},
    Code{ErrorCode::kRunFailed, "RUN_FAILED", 500},
};

const Code& entry_of(ErrorCode code) {
  const Code& entry = kCodes[static_cast<std::size_t>(code)];
  LEVADA_CHECK(entry.code == code, "kCodes stands in the order of ErrorCode");
  return entry;
}

}  // namespace

std::string_view to_string(ErrorCode code) { return entry_of(code).name; }

std::optional<ErrorCode> error_code_named(std::string_view name) {
  for (const Code& entry : kCodes) {
    if (entry.name == name) return entry.code;
  }
  return std::nullopt;
}

int http_status_of(ErrorCode code) { return entry_of(code).http_status; }

bool is_retryable(ErrorCode code) { return code == ErrorCode::kBusy || code == ErrorCode::kUnavailable; }

}  // namespace levada::fanout
