// How a Connection ends: its client's last byte, its own last word, time limits, loss and the server's stop.
#include <poll.h>

#include <utility>

#include "http/connection.h"

namespace levada::http {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kLinger{2};

}  // namespace

void Connection::on_input_ended() {
  input_ended_ = true;
  if (lingering_) return close();
  pump();  // a response that was complete before the client's end came is still sent
  if (!closed_) process_input();
}

void Connection::close_after_flush() {
  closing_ = true;
  flush();
}

// Closing with unread bytes in the socket would reset the connection and could cost the client our last words.
void Connection::begin_linger() {
  if (input_ended_) return close();
  lingering_ = true;
  since_ = steady_clock::now();
  input_.consume(input_.view().size());
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  begin_read();
}

void Connection::lose() {
  if (closed_) return;
  const Exchange::Ended ended = exchange_.lose();
  if (ended.status != 0) site_.count_response(ended.status);
  close();
  if (ended.was_lost && ended.on_gone) run_guarded(ended.on_gone);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  sending_.clear();
  end_request();
  error_code ignored;
  socket_.close(ignored);
  site_.on_closed(*this);
}

// A reset is noticed even while nothing is read.
void Connection::watch_for_loss() {
  if (watching_ || closed_) return;
  watching_ = true;
  socket_.async_wait(asio::socket_base::wait_error, [self = shared_from_this()](const error_code& error) {
    self->watching_ = false;
    if (self->closed_ || error) return;
    pollfd state{self->socket_.native_handle(), 0, 0};
    if (::poll(&state, 1, 0) > 0 && (state.revents & (POLLERR | POLLHUP))) self->lose();
  });
}

void Connection::on_tick(TimePoint now) {
  if (closed_) return;
  const ServerOptions& options = site_.options();
  if (lingering_) {
    if (now - since_ > kLinger) close();
    return;
  }
  if (!sending_.empty() && now - last_progress_ > options.read_timeout) return lose();
  if (handling_) return;
  if (reader_ && reader_->started()) {
    if (now - since_ > options.read_timeout) refuse(408, "the request did not arrive in time");
  } else if (now - since_ > options.idle_timeout) {
    close_after_flush();
  }
}

void Connection::drain() {
  draining_ = true;
  exchange_.forbid_keep_alive();
  if (!handling_ && !closing_) close_after_flush();
}

}  // namespace levada::http
