// What: Site, what a Connection needs from its server: routes, limits, counters and a place to sign off.
// Owner: the Server; it outlives every handler of the I/O thread.
// Thread: the I/O thread.
// Invariant: look_up() is pure; whoever acts on the answer counts the request.
// Kept apart so that a Connection knows nothing of listening, accepting and stopping.
#pragma once

#include <string>
#include <string_view>

#include "http/server.h"

namespace levada::http {

class Connection;

// The handler of a request, or the answer when there is none.
struct RouteAnswer {
  const Handler* handler = nullptr;
  int status = 0;                 // of the ready answer
  std::string message;            // of its error body; empty: no body
  std::string extra_lines;        // "Allow: GET, HEAD\r\n"
  std::string_view common_lines;  // of whatever response follows; outlive the Site's last exchange
  Counter* requests = nullptr;    // never null in an answer
};

class Site {
 public:
  virtual ~Site() = default;
  virtual const ServerOptions& options() const = 0;
  // Header lines of a refusal that no route is known for.
  virtual std::string_view common_lines() const = 0;
  virtual RouteAnswer look_up(const Request& request) const = 0;
  virtual void count_response(int status) = 0;
  // A request that took much memory is over.
  virtual void on_large_request_over() = 0;
  // The connection is closed and may be forgotten.
  virtual void on_closed(Connection& connection) = 0;
};

}  // namespace levada::http
