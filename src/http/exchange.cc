#include "http/exchange.h"

#include <utility>

#include "http/text.h"

namespace levada::http {

bool Exchange::is_open(std::uint64_t number, Phase phase) const { return number_ == number && phase_ == phase; }

void Exchange::wake_once() {
  if (!woken_.exchange(true)) wake_();
}

// REQUIRES: mutex_ held, phase kWaiting.
void Exchange::put_response(int status, std::string_view content_type, std::string body, std::string_view extra_lines) {
  const std::size_t before = outbox_.size();
  append_head(outbox_.tail(), {.status = status,
                               .content_type = content_type,
                               .content_length = body.size(),
                               .keep_alive = terms_.keep_alive,
                               .extra_lines = extra_lines,
                               .common_lines = terms_.common_lines});
  if (!terms_.is_head && status != 204 && status != 304) outbox_.add(std::move(body));
  pending_bytes_ += outbox_.size() - before;
  status_ = status;
  phase_ = Phase::kDone;
}

// REQUIRES: mutex_ held, phase kStreaming.
void Exchange::put_chunk(std::string bytes) {
  if (terms_.is_http10) {
    outbox_.add(std::move(bytes));
  } else {
    append_chunk(outbox_.tail(), bytes);
  }
}

void Exchange::respond(std::uint64_t number, int status, std::string_view content_type, std::string body) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(number, Phase::kWaiting)) return;
    put_response(status, content_type, std::move(body), {});
  }
  wake_once();
}

void Exchange::start_stream(std::uint64_t number, int status, std::string_view content_type) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(number, Phase::kWaiting)) return;
    if (terms_.is_http10) terms_.keep_alive = false;  // the end of the body is the end of the connection
    const std::size_t before = outbox_.size();
    append_head(outbox_.tail(), {.status = status,
                                 .content_type = content_type,
                                 .framing = terms_.is_http10 ? BodyFraming::kUntilClose : BodyFraming::kChunked,
                                 .keep_alive = terms_.keep_alive,
                                 .common_lines = terms_.common_lines});
    pending_bytes_ += outbox_.size() - before;
    status_ = status;
    phase_ = Phase::kStreaming;
  }
  wake_once();
}

void Exchange::write(std::uint64_t number, std::string bytes) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(number, Phase::kStreaming) || terms_.is_head || overflowed_ || bytes.empty()) return;
    const std::size_t before = outbox_.size();
    put_chunk(std::move(bytes));
    pending_bytes_ += outbox_.size() - before;
    if (pending_bytes_ > max_pending_bytes_) {
      overflowed_ = true;
      outbox_.clear();
    }
  }
  wake_once();
}

void Exchange::end(std::uint64_t number) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(number, Phase::kStreaming)) return;
    if (!terms_.is_http10 && !terms_.is_head) {
      outbox_.add(kLastChunk);
      pending_bytes_ += kLastChunk.size();
    }
    phase_ = Phase::kDone;
  }
  wake_once();
}

void Exchange::on_disconnect(std::uint64_t number, std::function<void()> callback) {
  bool lost;
  {
    std::lock_guard lock(mutex_);
    lost = is_open(number, Phase::kLost);
    if (!lost && !is_open(number, Phase::kWaiting) && !is_open(number, Phase::kStreaming)) return;
    callback.swap(on_gone_);  // the one it replaces is destroyed outside the lock
  }
  if (lost) wake_once();
}

void Exchange::abandon(std::uint64_t number) {
  {
    std::lock_guard lock(mutex_);
    if (is_open(number, Phase::kWaiting)) {
      put_response(500, "application/json", error_body(500, "the server gave no answer to this request"), {});
    } else if (is_open(number, Phase::kStreaming)) {
      // Without its last chunk the client can tell that the body is incomplete.
      terms_.keep_alive = false;
      phase_ = Phase::kDone;
    } else {
      return;
    }
  }
  wake_once();
}

// ---- I/O thread ----

std::uint64_t Exchange::begin(const Terms& terms) {
  std::lock_guard lock(mutex_);
  ++number_;
  phase_ = Phase::kWaiting;
  terms_ = terms;
  status_ = 0;
  overflowed_ = false;
  woken_ = true;
  return number_;
}

void Exchange::answer(int status, std::string_view content_type, std::string body, std::string_view extra_lines) {
  std::lock_guard lock(mutex_);
  put_response(status, content_type, std::move(body), extra_lines);
}

Exchange::Taken Exchange::take(OutputQueue& sending) {
  woken_ = false;  // before the lock: what comes later wakes again
  std::lock_guard lock(mutex_);
  sending.take(outbox_);
  return {.complete = phase_ == Phase::kDone, .overflowed = overflowed_};
}

Exchange::Ended Exchange::finish() {
  std::lock_guard lock(mutex_);
  phase_ = Phase::kNone;
  return {.status = status_, .keep_alive = terms_.keep_alive, .on_gone = std::exchange(on_gone_, nullptr)};
}

Exchange::Ended Exchange::lose() {
  std::lock_guard lock(mutex_);
  Ended ended;
  if (phase_ == Phase::kWaiting || phase_ == Phase::kStreaming) {
    // 499: nobody was there to receive a status.
    ended.status = phase_ == Phase::kWaiting ? 499 : status_;
    ended.was_lost = true;
    phase_ = Phase::kLost;
  } else if (phase_ == Phase::kDone) {
    // Complete, though the client didn't take it: nobody is told, and what the callback holds is let go.
    ended.status = status_;
    phase_ = Phase::kNone;
  }
  if (ended.status != 0) ended.on_gone = std::exchange(on_gone_, nullptr);
  outbox_.clear();
  pending_bytes_ = 0;
  gone_ = true;
  return ended;
}

std::function<void()> Exchange::take_late_callback() {
  woken_ = false;
  std::lock_guard lock(mutex_);
  return phase_ == Phase::kLost ? std::exchange(on_gone_, nullptr) : nullptr;
}

void Exchange::forbid_keep_alive() {
  std::lock_guard lock(mutex_);
  terms_.keep_alive = false;
}

}  // namespace levada::http
