// What: Client, a small blocking HTTP/1.1 client for tests, benches, `levada doctor` and tools.
// Owner: whoever asks; one connection, kept alive between requests.
// Thread: one at a time.
// Invariant: no call outlasts its timeout or a stop; what the server sends is bounded and never trusted.
// Bodies arrive whole, or piece by piece through ClientRequest::on_body.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace levada::http {

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";  // path and query, percent-encoded
  std::string body;          // sent with its length unless empty (POST always says its length)
  std::map<std::string, std::string> headers;
  std::chrono::milliseconds timeout{30'000};  // for the whole exchange
  std::stop_token stop;                       // ends it at once; only the look-up of a name can't be cut short
  // Called with each piece of the body as it arrives, chunk framing removed; false ends the exchange and the
  // connection.
  std::function<bool(std::string_view)> on_body;
};

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // empty if on_body took it
};

class Client {
 public:
  // Connects on the first request.
  Client(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}

  // kUnavailable if the server cannot be reached or does not answer in time; kDataLoss if what it answers is not HTTP,
  // is too long (1 GiB) or ends early; kAborted if on_body said so, or by `stop`. Any response with a status is a success.
  Result<ClientResponse> request(const ClientRequest& request);
  Result<ClientResponse> get(std::string target);
  Result<ClientResponse> post(std::string target, std::string body);  // application/json
  // Closes the connection; the next request opens another.
  void close() { socket_.reset(); }

 private:
  // What ends a wait, apart from what is waited for.
  struct Until {
    std::chrono::steady_clock::time_point deadline;
    int stopped = -1;  // readable after a stop
  };

  Result<ClientResponse> exchange(const ClientRequest& request, Until until);
  Status connect(Until until);
  Status wait(short events, Until until) const;
  Status send_all(std::string_view bytes, Until until);
  Result<ClientResponse> receive(const ClientRequest& request, Until until);
  Result<std::size_t> receive_some(char* into, std::size_t room, Until until);
  bool is_stale() const;
  std::string address() const { return host_ + ":" + std::to_string(port_); }

  std::string host_;
  std::uint16_t port_;
  Fd socket_;
};

}  // namespace levada::http
