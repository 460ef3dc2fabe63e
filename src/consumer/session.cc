#include "consumer/session.h"

#include <algorithm>

#include "base/log.h"

namespace levada::consumer {

using fanout::ErrorCode;

namespace {

constexpr std::int64_t kFirstPauseUs = 50'000;
constexpr std::int64_t kLongestPauseUs = 2'000'000;

bool is_fenced(ErrorCode code) { return code == ErrorCode::kEpochFenced || code == ErrorCode::kSessionFenced; }

StatusCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnauthenticated: return StatusCode::kUnauthenticated;
    case ErrorCode::kRole: return StatusCode::kPermissionDenied;
    case ErrorCode::kUnknownConsumer: return StatusCode::kNotFound;
    case ErrorCode::kDuplicateConsumer: return StatusCode::kAlreadyExists;
    case ErrorCode::kRunFailed:
    case ErrorCode::kDraining: return StatusCode::kAborted;
    case ErrorCode::kBusy:
    case ErrorCode::kUnavailable: return StatusCode::kUnavailable;
    case ErrorCode::kLimit: return StatusCode::kResourceExhausted;
    case ErrorCode::kContractMismatch:
    case ErrorCode::kPlanMismatch:
    case ErrorCode::kSessionFenced:
    case ErrorCode::kEpochFenced:
    case ErrorCode::kConsumerCompleted:
    case ErrorCode::kConsumerFailed:
    case ErrorCode::kCursorConflict:
    case ErrorCode::kOutOfWindow:
    case ErrorCode::kLeaseLost:
    case ErrorCode::kStaleGeneration: return StatusCode::kFailedPrecondition;
    default: return StatusCode::kInternal;
  }
}

}  // namespace

Status status_of(const fanout::Error& error) {
  return Status(code_of(error.code), "registry: " + std::string(to_string(error.code)) + ": " + error.message);
}

class Session::Patience {
 public:
  Patience(const Clock& clock, Pause& pause, std::int64_t limit_us)
      : clock_(clock), pause_(pause), until_us_(clock.now_us() + limit_us) {}
  // False if it has run out; then failure() says why.
  bool wait() {
    if (clock_.now_us() >= until_us_ || !pause_.wait_us(pause_us_)) return false;
    pause_us_ = std::min(2 * pause_us_, kLongestPauseUs);
    return true;
  }
  Status failure(const fanout::Error& last) const {
    return pause_.stopped() ? Status(StatusCode::kAborted, "stopped") : status_of(last);
  }

 private:
  const Clock& clock_;
  Pause& pause_;
  const std::int64_t until_us_;
  std::int64_t pause_us_ = kFirstPauseUs;
};

Status Session::open() {
  Patience patience(clock_, pause_, options_.start_wait_us);
  for (;;) {
    const auto reply = registry_.call(who_);
    if (reply.ok()) {
      std::lock_guard lock(mutex_);
      registration_ = *reply;
      last_op_ = 0;
      return {};
    }
    const ErrorCode code = reply.error().code;
    completed_before_ = code == ErrorCode::kConsumerCompleted;
    const bool may_pass = fanout::is_retryable(code) || code == ErrorCode::kDuplicateConsumer;
    if (!may_pass) return status_of(reply.error());
    if (!patience.wait()) return patience.failure(reply.error());
  }
}

fanout::RegisterReply Session::registration() const {
  std::lock_guard lock(mutex_);
  return registration_;
}

std::int64_t Session::epoch() const {
  std::lock_guard lock(mutex_);
  return registration_.session_epoch;
}

fanout::SessionKey Session::key() const {
  std::lock_guard lock(mutex_);
  return {registration_.session_id, registration_.session_epoch};
}

// Whoever meets the fence first registers; the others find it done.
Status Session::register_again(std::int64_t fenced_epoch) {
  std::lock_guard renewing(renewing_);
  if (epoch() != fenced_epoch) return {};
  fanout::RegisterRequest request = who_;
  request.takeover = false;  // a newer process of this consumer has precedence
  Patience patience(clock_, pause_, options_.outage_us);
  for (;;) {
    const auto reply = registry_.call(request);
    if (reply.ok()) {
      LEVADA_LOG_INFO("consumer ", who_.consumer_id, " is registered again, session epoch ", reply->session_epoch);
      std::lock_guard lock(mutex_);
      registration_ = *reply;
      last_op_ = 0;
      return {};
    }
    if (!fanout::is_retryable(reply.error().code)) return status_of(reply.error());
    if (!patience.wait()) return patience.failure(reply.error());
  }
}

template <class R>
Result<typename R::Reply> Session::call(R request, std::int64_t& sent_us) {
  Patience patience(clock_, pause_, options_.outage_us);
  for (;;) {
    request.key = key();
    sent_us = clock_.now_us();
    auto reply = registry_.call(request);
    if (reply.ok()) return *std::move(reply);
    if (is_fenced(reply.error().code)) {
      LEVADA_RETURN_IF_ERROR(register_again(request.key.session_epoch));
    } else if (!fanout::is_retryable(reply.error().code)) {
      return status_of(reply.error());
    } else if (!patience.wait()) {
      return patience.failure(reply.error());
    }
  }
}

Result<fanout::AcquireReply> Session::acquire(std::int64_t from, std::int64_t max_n, std::int64_t wait_ms,
                                              std::int64_t& sent_us) {
  return call(fanout::AcquireRequest{{}, from, max_n, wait_ms}, sent_us);
}

Result<fanout::HeartbeatReply> Session::heartbeat(bool ready, const std::vector<std::string>& tokens,
                                                  std::int64_t& sent_us) {
  const fanout::HeartbeatRequest request{key(), ready, tokens};
  sent_us = clock_.now_us();
  auto reply = registry_.call(request);
  if (reply.ok()) return *std::move(reply);
  if (!is_fenced(reply.error().code)) return status_of(reply.error());
  LEVADA_RETURN_IF_ERROR(register_again(request.key.session_epoch));
  return fanout::HeartbeatReply{{}, tokens};  // what was leased before can't be renewed
}

template <class R>
Result<typename R::Reply> Session::numbered(
    R request, const std::function<std::optional<typename R::Reply>(const fanout::RegisterReply&)>& done_before) {
  std::lock_guard turn(turn_);
  Patience patience(clock_, pause_, options_.outage_us);
  std::optional<std::int64_t> asked_in;  // the session epoch of the try before
  for (;;) {
    fanout::RegisterReply session;
    {
      std::lock_guard lock(mutex_);
      session = registration_;
      request.key = {session.session_id, session.session_epoch, last_op_ + 1};
    }
    // A new session numbers from one, so the registry can't know the try before by its number. Any thread may have
    // registered meanwhile.
    if (asked_in.value_or(session.session_epoch) != session.session_epoch) {
      if (auto done = done_before(session)) return *std::move(done);
    }
    asked_in = session.session_epoch;
    auto reply = registry_.call(request);
    if (reply.ok()) {
      std::lock_guard lock(mutex_);
      if (registration_.session_epoch == request.key.session_epoch) last_op_ = request.key.op;
      return *std::move(reply);
    }
    if (is_fenced(reply.error().code)) {
      LEVADA_RETURN_IF_ERROR(register_again(request.key.session_epoch));
    } else if (!fanout::is_retryable(reply.error().code)) {
      return status_of(reply.error());
    } else if (!patience.wait()) {
      return patience.failure(reply.error());
    }
  }
}

Status Session::resume(std::int64_t cursor, std::int64_t step) {
  const auto not_done = [](const fanout::RegisterReply&) -> std::optional<fanout::CursorReply> { return {}; };
  return numbered(fanout::ResumeRequest{{}, cursor, step}, not_done).status();
}

Status Session::checkpoint(std::int64_t step, std::int64_t cursor, const std::string& uri) {
  const auto not_done = [](const fanout::RegisterReply&) -> std::optional<fanout::OkReply> { return {}; };
  return numbered(fanout::CheckpointRequest{{}, step, cursor, uri}, not_done).status();
}

Status Session::advance(std::int64_t old_cursor, std::int64_t new_cursor, std::int64_t step) {
  const auto done = [&](const fanout::RegisterReply& reply) -> std::optional<fanout::CursorReply> {
    if (reply.cursor != new_cursor || reply.step != step) return std::nullopt;
    return fanout::CursorReply{new_cursor};
  };
  return numbered(fanout::AdvanceRequest{{}, old_cursor, new_cursor, step, true}, done).status();
}

Status Session::abandon(const std::vector<std::string>& tokens, const std::string& reason) {
  const auto void_now = [](const fanout::RegisterReply&) { return std::optional<fanout::AbandonReply>(std::in_place); };
  return numbered(fanout::AbandonRequest{{}, tokens, reason}, void_now).status();
}

Status Session::report_lost(std::int64_t position, std::int64_t generation, fanout::LossReason reason) {
  const auto not_done = [](const fanout::RegisterReply&) -> std::optional<fanout::EntryReply> { return {}; };
  return numbered(fanout::ReportLostRequest{{}, position, generation, reason}, not_done).status();
}

Result<fanout::CompleteReply> Session::complete(std::int64_t step, std::int64_t cursor, bool allow_partial) {
  const auto not_done = [](const fanout::RegisterReply&) -> std::optional<fanout::CompleteReply> { return {}; };
  return numbered(fanout::CompleteConsumerRequest{{}, step, cursor, allow_partial}, not_done);
}

Status Session::fail(const std::string& reason) {
  std::lock_guard turn(turn_);
  fanout::FailConsumerRequest request;
  {
    std::lock_guard lock(mutex_);
    request.key = {registration_.session_id, registration_.session_epoch, last_op_ + 1};
  }
  request.reason = reason;
  const auto reply = registry_.call(request);
  return reply.ok() ? Status() : status_of(reply.error());
}

}  // namespace levada::consumer
