// What: Connection, one client's socket: reads requests one after the other, sends each one's response in order.
// Owner: the Server's set while open; Responders keep the object (not the socket) alive.
// Thread: the I/O thread; handlers on other threads meet its Exchange alone.
// Invariant: at most one exchange is open; the next request is parsed once its predecessor's response is complete.
// States:
//   socket: open ──close_after_flush()──> sending the rest ──begin_linger()──> reading to the end ──close()──> closed
//           open | sending the rest ──lose()──> closed: the client went away
// A client that shuts its sending side down before its response is complete counts as gone: only a write would tell it
// from one that closed, and there is nothing harmless to write before a response.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "http/exchange.h"
#include "http/input_buffer.h"
#include "http/loop.h"
#include "http/output_queue.h"
#include "http/request_reader.h"
#include "http/site.h"

namespace levada::http {

class Connection final : public TurnTaker, public std::enable_shared_from_this<Connection> {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Loop> loop, Site& site);

  void start();
  // Applies the time limits; called about four times per shortest limit.
  void on_tick(TimePoint now);
  // The server is stopping: closes at once when idle, else after the present response.
  void drain();
  // Ends it now; an open exchange sees a disconnect.
  void abort() { lose(); }
  void on_turn() override;

 private:
  // connection.cc: requests in, responses out.
  void begin_read();
  void on_read(const boost::system::error_code& error, std::size_t bytes);
  void process_input();
  bool process_some();
  void on_header_done();
  void dispatch(Request request, bool keep_alive);
  void call(const RouteAnswer& answer, Request request, std::uint64_t number);
  void refuse(int status, std::string message);
  void pump();
  void finish_exchange();
  void end_request();
  void flush();
  void await_writable();

  // connection_close.cc: how it ends.
  void on_input_ended();
  void close_after_flush();
  void begin_linger();
  void lose();
  void close();
  void watch_for_loss();

  const std::shared_ptr<Loop> loop_;  // shared: see Loop; before the socket, whose end still needs it
  boost::asio::ip::tcp::socket socket_;
  Site& site_;
  Exchange exchange_;
  OutputQueue sending_;
  InputBuffer input_;
  std::optional<RequestReader> reader_;  // a request is being read or handled
  std::size_t request_bytes_ = 0;        // received since its beginning
  bool handling_ = false;                // an exchange is open
  bool reading_ = false;
  bool watching_ = false;
  bool waiting_writable_ = false;
  bool input_ended_ = false;
  bool closing_ = false;  // no further request is read
  bool lingering_ = false;
  bool draining_ = false;
  bool closed_ = false;
  TimePoint since_;          // of the present wait: idle, reading or lingering
  TimePoint last_progress_;  // of sending
};

}  // namespace levada::http
