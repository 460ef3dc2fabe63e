// What: TestServer and RawSocket, for tests that meet the server over real loopback sockets, byte by byte.
// Owner: each test.
// Thread: the test's; TestServer runs the server on a thread of its own.
// Invariant: nothing here waits longer than ten seconds; a TestServer stops its server when it ends.
// Raw on purpose: a well-behaved client could not send what these tests must send.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "http/server.h"

namespace levada::http {

class TestServer {
 public:
  explicit TestServer(ServerOptions options = {}) {
    options.port = 0;
    Result<std::unique_ptr<Server>> listening = Server::listen(options, metrics);
    LEVADA_CHECK(listening.ok(), listening.status().to_string().c_str());
    server = *std::move(listening);
  }
  ~TestServer() { stop(); }

  void start() {
    thread_ = Thread("test-server", [this] { server->run(); });
  }
  void stop(std::chrono::milliseconds grace = std::chrono::milliseconds(0)) {
    if (server != nullptr) server->stop(grace);
    thread_.join();
  }
  std::uint16_t port() const { return server->port(); }
  double responses(int status) {
    return metrics
        .counter("sglang:http_responses_total", "HTTP responses by status; 499: the client left first.",
                 {{"status_code", std::to_string(status)}})
        .value();
  }

  Metrics metrics;
  std::unique_ptr<Server> server;

 private:
  Thread thread_;
};

class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port, int receive_buffer_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer_bytes > 0)
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  bool connected() const { return connected_; }
  // False once the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const long sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void half_close() { ::shutdown(socket_.get(), SHUT_WR); }
  void close() { socket_.reset(); }
  // Closes with a reset instead of a FIN.
  void reset() {
    const linger now{1, 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    socket_.reset();
  }

  // Everything until the server closes; `ended` says whether it did.
  std::string read_all() {
    std::string all;
    while (read_some(all)) {
    }
    return all;
  }
  // Until `text` has come `times` times.
  std::string read_until(std::string_view text, int times = 1) {
    std::string all;
    while (count(all, text) < times && read_some(all)) {
    }
    return all;
  }
  bool ended() const { return ended_; }

  static int count(std::string_view all, std::string_view text) {
    int times = 0;
    for (std::size_t at = all.find(text); at != all.npos; at = all.find(text, at + text.size())) ++times;
    return times;
  }

 private:
  bool read_some(std::string& all) {
    pollfd state{socket_.get(), POLLIN, 0};
    if (::poll(&state, 1, 10'000) <= 0) return false;
    char buffer[16384];
    const long got = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    ended_ = got <= 0;
    if (got > 0) all.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }

  Fd socket_;
  bool connected_ = false;
  bool ended_ = false;
};

}  // namespace levada::http
