#include "producer/server_watch.h"

#include "base/log.h"

namespace levada::producer {

ServerWatch::State ServerWatch::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

std::string ServerWatch::store_url() const {
  std::lock_guard lock(mutex_);
  return store_url_;
}

std::string ServerWatch::last_error() const {
  std::lock_guard lock(mutex_);
  return last_error_;
}

Status ServerWatch::describe(CaptureServer& server, fanout::RegistryApi& registry, std::int64_t timeout_us,
                             std::int64_t now_us) {
  const auto side = describe_capture(server, timeout_us);
  if (side.status().code() == StatusCode::kUnavailable) return on_silence(side.status(), registry, now_us);
  LEVADA_RETURN_IF_ERROR(side.status());
  LEVADA_RETURN_IF_ERROR(check(*side));
  const Result<std::string> store_url = choose_store(side->store, options_.store);
  if (!store_url.ok())
    return Status(store_url.status().code(), url_ + ": " + store_url.status().message(), store_url.status().field());
  LEVADA_RETURN_IF_ERROR(learn(*store_url, side->incarnation, registry));
  std::lock_guard lock(mutex_);
  silent_since_us_ = -1;
  if (state_ != State::kDropped) state_ = State::kUp;
  return {};
}

Status ServerWatch::check(const CaptureSide& side) const {
  const auto refuse = [&](const std::string& what, const char* field) {
    return Status(StatusCode::kFailedPrecondition, url_ + " " + what, field);
  };
  if (side.store_id != contract_.store_id) {
    return refuse("writes under store_id \"" + side.store_id + "\", this run under \"" + contract_.store_id + "\"",
                  "store_id");
  }
  if (side.hidden_size != 0 && side.hidden_size != contract_.hidden_size) {
    return refuse(
        "has hidden size " + std::to_string(side.hidden_size) + ", this run " + std::to_string(contract_.hidden_size),
        "target_hidden_size");
  }
  return {};
}

Status ServerWatch::on_silence(const Status& why, fanout::RegistryApi& registry, std::int64_t now_us) {
  std::string lost_store;
  {
    std::lock_guard lock(mutex_);
    last_error_ = why.message();
    if (silent_since_us_ < 0) silent_since_us_ = now_us;
    if (state_ == State::kUp) state_ = State::kDown;
    const bool is_too_long = now_us - silent_since_us_ >= options_.outage_us;
    if (!is_too_long || state_ == State::kGone) return why;
    state_ = State::kGone;
    lost_store = store_url_;
  }
  LEVADA_LOG_WARNING(url_, " has not answered for ", options_.outage_us / 1'000'000, " s and is given up: ", why);
  if (lost_store.empty()) return why;
  const auto lost = registry.call(fanout::ServerLostRequest{lost_store, 0});
  return lost.ok() ? why : unavailable("server_lost: " + lost.error().message);
}

Status ServerWatch::on_captured(const core::SampleRef& ref, fanout::RegistryApi& registry) {
  LEVADA_RETURN_IF_ERROR(learn(ref.store_url, ref.incarnation, registry));
  std::lock_guard lock(mutex_);
  failed_calls_ = 0;
  silent_since_us_ = -1;
  return {};
}

// The registry is told outside the lock: two callers may tell it the same, which changes nothing.
Status ServerWatch::learn(const std::string& store_url, std::uint64_t incarnation, fanout::RegistryApi& registry) {
  std::string old_url;
  {
    std::lock_guard lock(mutex_);
    if (store_url_ == store_url && incarnation_ == incarnation) return {};
    if (store_url_ != store_url) old_url = store_url_;
  }
  std::int64_t lost = 0;
  for (const auto& request :
       {fanout::ServerLostRequest{old_url, 0}, fanout::ServerLostRequest{store_url, incarnation}}) {
    if (request.store_url.empty()) continue;
    const auto reply = registry.call(request);
    if (!reply.ok()) return unavailable("server_lost: " + reply.error().message);
    lost += reply->lost;
  }
  if (lost > 0) LEVADA_LOG_WARNING(url_, " has a new arena: ", lost, " captured samples are gone");
  std::lock_guard lock(mutex_);
  store_url_ = store_url;
  incarnation_ = incarnation;
  failed_calls_ = 0;
  state_ = State::kUp;
  return {};
}

void ServerWatch::on_failed_call(const std::string& error) {
  std::lock_guard lock(mutex_);
  last_error_ = error;
  failed_calls_ += 1;
  if (state_ == State::kUp) state_ = State::kDown;
  if (failed_calls_ < options_.failures || state_ == State::kGone || state_ == State::kDropped) return;
  state_ = State::kDropped;
  LEVADA_LOG_WARNING(url_, " is dropped after ", failed_calls_, " failed captures in a row: ", error);
}

}  // namespace levada::producer
