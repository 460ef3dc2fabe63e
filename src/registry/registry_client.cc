#include "registry/registry_client.h"

#include <algorithm>

#include "registry/message_json.h"

namespace levada::registry {

using fanout::Error;
using fanout::ErrorCode;
using fanout::Outcome;
using fanout::Reply;
using fanout::Request;

RegistryClient::RegistryClient(ClientOptions options, RefContext context, const Clock& clock, Sleep sleep)
    : options_(std::move(options)), context_(std::move(context)), clock_(clock), sleep_(std::move(sleep)) {}

Outcome<Reply> RegistryClient::call_any(Request request) {
  http::ClientRequest http_request;
  http_request.method = "POST";
  http_request.target = "/v1/fanout/" + std::string(operation_of(request));
  http_request.body = request_json(request, context_);
  http_request.headers = {{"Authorization", "Bearer " + options_.token}, {"Content-Type", "application/json"}};
  const std::chrono::milliseconds wait(std::clamp<std::int64_t>(wait_ms_of(request), 0, 20'000));
  http_request.timeout = options_.answer_timeout + wait;
  http_request.stop = options_.stop;
  const std::int64_t give_up_us =
      clock_.now_us() + std::chrono::duration_cast<std::chrono::microseconds>(options_.patience).count();
  for (std::chrono::milliseconds pause = options_.first_pause;; pause = std::min(pause * 2, options_.longest_pause)) {
    Outcome<Reply> outcome = try_once(request, http_request);
    if (outcome.ok() || !is_retryable(outcome.error().code)) return outcome;
    if (options_.stop.stop_requested() || clock_.now_us() >= give_up_us) return outcome;
    sleep_(pause);
  }
}

Outcome<Reply> RegistryClient::try_once(const Request& request, const http::ClientRequest& http_request) {
  std::unique_ptr<http::Client> connection = take_connection();
  const auto response = connection->request(http_request);
  if (!response.ok()) return Error{ErrorCode::kUnavailable, response.status().to_string()};
  put_back(std::move(connection));
  if (response->status != 200) return parse_error(response->status, response->body);
  Outcome<Reply> reply = parse_reply(request, response->body);
  if (!reply.ok())
    return Error{ErrorCode::kUnavailable, "the registry's answer cannot be read: " + reply.error().message};
  return reply;
}

std::unique_ptr<http::Client> RegistryClient::take_connection() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<http::Client>(options_.host, options_.port);
  auto connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

void RegistryClient::put_back(std::unique_ptr<http::Client> connection) {
  std::lock_guard lock(mutex_);
  idle_.push_back(std::move(connection));
}

}  // namespace levada::registry
