// What: ServerTest, a running server with the routes most tests need.
// Owner: each test.
// Thread: the test's; handlers run on the server's.
// Invariant: /later parks its Responder until the test answers from its own thread.
// Routes that no test asks across origins keep the default, Origins::kOwn.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "http/test_socket.h"

namespace levada::http {

inline constexpr std::string_view kHello = "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n";

class ServerTest : public testing::Test {
 protected:
  explicit ServerTest(ServerOptions options = {}) : site(options) {
    site.server->route("GET", "/hello", [](Request, Responder out) { out.respond(200, "text/plain", "hello"); });
    site.server->route("POST", "/echo", [](Request in, Responder out) { out.respond(200, "text/plain", in.body); });
    site.server->route("GET", "/stream", [](Request, Responder out) {
      out.start_stream(200, "text/event-stream");
      for (const char* event : {"data: 1\n\n", "data: 2\n\n"}) out.write(event);
      out.end();
    });
    site.server->route("GET", "/large",
                       [](Request, Responder out) { out.respond(200, "text/plain", std::string(100 << 10, 'x')); });
    site.server->route("GET", "/later", [this](Request, Responder out) { park(std::move(out)); });
    site.server->route("GET", "/drop", [](Request, Responder) {});
    site.server->route("GET", "/throw", [](Request, Responder) { throw std::runtime_error("no luck"); });
    site.server->route("GET", "/throw-late", [](Request, Responder out) {
      out.start_stream(200, "text/plain");
      out.write("part");
      throw std::runtime_error("no luck");
    });
    site.start();
  }

  void park(Responder out) {
    std::lock_guard lock(mutex_);
    parked_.push_back(std::move(out));
    changed_.notify_all();
  }
  Responder take_parked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !parked_.empty(); });
    Responder out = std::move(parked_.front());
    parked_.pop_front();
    return out;
  }
  std::string raw(std::string_view bytes) {
    RawSocket socket(site.port());
    socket.send(bytes);
    socket.half_close();
    return socket.read_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Responder> parked_;
  TestServer site;  // last: its handlers use the others
};

}  // namespace levada::http
