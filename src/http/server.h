// What: Server, HTTP/1.1 on one I/O thread: routes, bounded bodies, streams with back-pressure, disconnect notice.
// Owner: whoever composes the process; handlers and their captures must outlive run().
// Thread: handlers run on the I/O thread and must not block; a Responder may be used from any thread (it posts).
// Invariant: every request gets exactly one response; a handler that drops its Responder gets 500 sent for it; nothing
// a client sends ends the process; limits are answered with 400, 408, 413, 414, 431, 501 or 505 and a JSON body.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "base/status.h"

namespace levada::http {

struct Request {
  std::string method;  // "GET"
  std::string path;    // without the query, percent-decoded
  std::map<std::string, std::string> query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// TOKEN of "Authorization: Bearer TOKEN", a view into the request; empty without it.
std::string_view bearer_token(const Request& request);

// The one answer to one request. Copyable handle; the last copy dropped without an answer sends 500.
// Each call out of turn (a second answer, a write after end(), anything once the client is gone) does nothing.
class Responder {
 public:
  // A whole response; keep-alive is handled below.
  void respond(int status, std::string_view content_type, std::string body) const;
  // Starts a chunked response (text/event-stream for SSE); then any number of write(), then end().
  void start_stream(int status, std::string_view content_type) const;
  void write(std::string bytes) const;  // writes of one I/O turn go out in one system call
  void end() const;
  // Called once on the I/O thread if the client goes away before the response is complete: it closed, half-closed or
  // reset the connection, reads too slowly, or the server stops.
  void on_disconnect(std::function<void()> callback) const;
  bool client_gone() const;
  // Bytes accepted by write() and not yet taken by the socket.
  std::size_t pending_bytes() const;

 private:
  friend class Server;
  friend class Connection;
  struct State;
  std::shared_ptr<State> state_;  // shared by the copies, on whatever threads; its end is how a dropped request is seen
};

using Handler = std::function<void(Request, Responder)>;

// The web pages that may use a route from a browser. Clients other than browsers may use every route.
enum class Origins : std::uint8_t {
  kOwn,  // those this server sent: who comes from elsewhere gets 403, and no leave to read any answer
  kAny,  // those ServerOptions::allow_origin names
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 30000;  // 0: any free port, see port()
  std::size_t max_body_bytes = 64u << 20;
  std::size_t max_header_bytes = 64u << 10;
  std::chrono::milliseconds read_timeout{60'000};   // for a whole request once its first byte came
  std::chrono::milliseconds idle_timeout{300'000};  // keep-alive
  std::string allow_origin = "*";            // Access-Control-Allow-Origin of routes for Origins::kAny; empty: none
  std::size_t max_pending_bytes = 8u << 20;  // a stream whose client reads too slowly is closed beyond this
  std::size_t max_connections = 4096;        // who comes when so many are open gets 503 and is closed
};

class Server {
 public:
  // Listens at once: kUnavailable naming address, port and remedy when the port is taken.
  static Result<std::unique_ptr<Server>> listen(const ServerOptions& options, Metrics& metrics);
  ~Server();

  // Exact paths; before run() only. HEAD is answered by GET's handler without the body, OPTIONS by the route table.
  // Unknown path: 404, known path with another method: 405 with Allow.
  void route(std::string method, std::string path, Handler handler, Origins origins = Origins::kOwn);
  // "GET /health" of every route, sorted.
  std::vector<std::string> routes() const;
  std::uint16_t port() const;
  // Serves until stop(); blocks.
  void run();
  // From any thread or a signal handler's thread: stops accepting, ends streams after `grace`, returns run().
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(5));
  // Runs a job on the I/O thread.
  void post(std::function<void()> job);
  // Runs a job on the I/O thread once `delay` has passed; dropped unrun if the server stops before. From any thread.
  void post_after(std::chrono::milliseconds delay, std::function<void()> job);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace levada::http
