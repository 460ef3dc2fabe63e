// What: RegistryClient, RegistryApi over HTTP.
// Owner: a role (consumer, operator's tool).
// Thread: any: every call takes a connection of its own from a small stock.
// Invariant: a call that the network lost is sent again unchanged, with growing pauses, until `patience` has passed: every
// operation is safe to repeat. Errors of the protocol are never retried, except BUSY and UNAVAILABLE.
// Format: docs/formats/registry.md.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fanout/registry_api.h"
#include "http/client.h"
#include "registry/ref_json.h"

namespace levada::registry {

struct ClientOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string token;
  std::chrono::milliseconds patience{60'000};        // for one call, over all its tries
  std::chrono::milliseconds answer_timeout{10'000};  // of one try, beyond the call's own wait_ms
  std::chrono::milliseconds first_pause{50};
  std::chrono::milliseconds longest_pause{2'000};
  std::stop_token stop;  // from then on every call, and the one under way, answers kUnavailable at once
};

class RegistryClient final : public fanout::RegistryApi {
 public:
  using Sleep = std::function<void(std::chrono::milliseconds)>;
  RegistryClient(ClientOptions options, RefContext context, const Clock& clock, Sleep sleep);

 protected:
  // kUnavailable once patience has run out: the call may have happened.
  fanout::Outcome<fanout::Reply> call_any(fanout::Request request) override;

 private:
  fanout::Outcome<fanout::Reply> try_once(const fanout::Request& request, const http::ClientRequest& http_request);
  std::unique_ptr<http::Client> take_connection();
  void put_back(std::unique_ptr<http::Client> connection);

  ClientOptions options_;
  RefContext context_;
  const Clock& clock_;
  Sleep sleep_;
  // A lock rather than a mailbox: callers share idle connections and nothing else, for an instant.
  std::mutex mutex_;
  std::vector<std::unique_ptr<http::Client>> idle_;
};

}  // namespace levada::registry
