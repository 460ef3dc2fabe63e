#include "http/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/log.h"
#include "http/responder_state.h"
#include "http/text.h"

namespace levada::http {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t kBodyInputBytes = 64u << 10;
constexpr std::size_t kInputSlackBytes = 4096;  // beyond the header limit, so that the limit is seen to be passed
constexpr std::size_t kLargeRequestBytes = 1u << 20;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

void keep_alive_probes(int socket) {
  // A client that vanished without a word (power, network) is noticed after about two minutes.
  const int on = 1, idle_s = 60, every_s = 15, count = 4;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<Loop> loop, Site& site)
    : loop_(std::move(loop)),
      socket_(std::move(socket)),
      site_(site),
      exchange_(site.options().max_pending_bytes, [this] { loop_->mark(shared_from_this()); }),
      since_(steady_clock::now()),
      last_progress_(since_) {}

void Connection::start() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  keep_alive_probes(socket_.native_handle());
  begin_read();
}

// ---- Reading ----

void Connection::begin_read() {
  if (reading_ || closed_ || input_ended_) return;
  const std::size_t limit = site_.options().max_header_bytes + kInputSlackBytes;
  // While a response is awaited reading goes on to notice the client's end; pipelined requests wait here, bounded.
  if (input_.view().size() >= limit) return watch_for_loss();
  const bool is_mid_request = reader_ && !handling_;
  if (!is_mid_request && !lingering_) input_.shrink();  // a connection that waits costs little, whatever it carried
  reading_ = true;
  socket_.async_read_some(input_.room(std::max(limit, kBodyInputBytes)),
                          [self = shared_from_this()](const error_code& error, std::size_t bytes) {
                            self->reading_ = false;
                            self->on_read(error, bytes);
                          });
}

void Connection::on_read(const error_code& error, std::size_t bytes) {
  if (closed_) return;
  if (error == asio::error::eof) return on_input_ended();
  if (error) return lose();
  input_.commit(bytes);
  if (lingering_) {
    input_.consume(bytes);
  } else {
    request_bytes_ += bytes;
    process_input();
  }
  begin_read();
}

void Connection::process_input() {
  bool go_on = true;
  while (go_on) {
    while (!handling_ && !closing_ && !closed_ && process_some()) {
    }
    if (closed_) return;
    const bool was_full = exchange_.is_full();
    flush();
    if (closed_) return;
    // Requests that waited for the client to take its answers may go on, now or once the socket is writable.
    go_on = was_full && !exchange_.is_full();
  }
  if (!input_ended_ || closing_) return;
  if (handling_) return lose();
  if (exchange_.is_full()) return;
  if (reader_ && reader_->started()) return refuse(400, "the request ended early");
  close_after_flush();
}

// One step of the reader; false when it waits for more bytes or for the client to take what was answered.
bool Connection::process_some() {
  if (input_.view().empty() || exchange_.is_full()) return false;
  const ServerOptions& options = site_.options();
  if (!reader_) {
    reader_.emplace(options.max_header_bytes, options.max_body_bytes);
    since_ = steady_clock::now();
  }
  std::size_t consumed = 0;
  const RequestReader::State state = reader_->read(input_.view(), consumed);
  input_.consume(consumed);
  switch (state) {
    case RequestReader::State::kNeedMore: return false;
    case RequestReader::State::kFailed: refuse(reader_->failure().status, reader_->failure().message); return false;
    case RequestReader::State::kHeaderDone: on_header_done(); return true;
    case RequestReader::State::kDone: dispatch(std::move(reader_->request()), reader_->keep_alive()); return true;
  }
  return false;
}

// A client that asks before it sends its body is told to go on, or at once that the body would be in vain. Whoever
// did not ask, or did not wait, gets no interim response (RFC 9110, 10.1.1).
void Connection::on_header_done() {
  if (!reader_->expects_continue() || !input_.view().empty() || input_ended_) return;
  if (site_.look_up(reader_->request()).handler == nullptr) return dispatch(std::move(reader_->request()), false);
  sending_.add(kContinue);
  exchange_.count_queued(kContinue.size());
}

// ---- Exchanges ----

void Connection::dispatch(Request request, bool keep_alive) {
  const RouteAnswer answer = site_.look_up(request);
  answer.requests->add();
  const std::uint64_t number = exchange_.begin({.is_head = request.method == "HEAD",
                                                .is_http10 = reader_->is_http10(),
                                                .keep_alive = keep_alive && !draining_,
                                                .common_lines = answer.common_lines});
  handling_ = true;
  call(answer, std::move(request), number);
  pump();
}

void Connection::call(const RouteAnswer& answer, Request request, std::uint64_t number) {
  if (answer.handler == nullptr) {
    const bool has_body = !answer.message.empty();
    return exchange_.answer(answer.status, has_body ? "application/json" : "",
                            has_body ? error_body(answer.status, answer.message) : "", answer.extra_lines);
  }
  Responder responder;
  responder.state_ =
      std::make_shared<Responder::State>(std::shared_ptr<Exchange>(shared_from_this(), &exchange_), number);
  try {
    (*answer.handler)(std::move(request), std::move(responder));
    return;
  } catch (const std::exception& error) {
    LEVADA_LOG_ERROR("http: a handler threw: ", error.what());
  } catch (...) {
    LEVADA_LOG_ERROR("http: a handler threw something that is no exception");
  }
  exchange_.abandon(number);
}

void Connection::refuse(int status, std::string message) {
  exchange_.begin({.common_lines = site_.common_lines()});
  exchange_.answer(status, "application/json", error_body(status, message), {});
  handling_ = true;
  pump();
}

// Moves what was answered to the sending queue; process_input() or on_turn() flush it, so that the answers to several
// pipelined requests leave together.
void Connection::pump() {
  const Exchange::Taken taken = exchange_.take(sending_);
  if (taken.overflowed) return lose();
  if (taken.complete && handling_) finish_exchange();
}

void Connection::finish_exchange() {
  handling_ = false;
  end_request();
  since_ = steady_clock::now();
  const Exchange::Ended ended = exchange_.finish();
  site_.count_response(ended.status);
  if (!ended.keep_alive) close_after_flush();
}

void Connection::end_request() {
  reader_.reset();
  if (std::exchange(request_bytes_, 0) > kLargeRequestBytes) site_.on_large_request_over();
}

void Connection::on_turn() {
  if (closed_) {
    // A callback that came after the client had gone is called now.
    if (const std::function<void()> callback = exchange_.take_late_callback()) run_guarded(callback);
    return;
  }
  pump();
  if (closed_) return;
  if (handling_) return flush();
  process_input();
  begin_read();
}

// ---- Sending ----

void Connection::flush() {
  if (closed_ || waiting_writable_) return;
  while (!sending_.empty()) {
    const long sent = sending_.send(socket_.native_handle());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return await_writable();
    if (sent < 0) return lose();
    exchange_.count_sent(static_cast<std::size_t>(sent));
    last_progress_ = steady_clock::now();
  }
  if (closing_ && !lingering_) begin_linger();
}

void Connection::await_writable() {
  waiting_writable_ = true;
  last_progress_ = steady_clock::now();
  socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](const error_code& error) {
    self->waiting_writable_ = false;
    if (self->closed_) return;
    self->flush();
    if (!self->closed_ && !self->handling_ && !self->closing_) self->process_input();
    if (!self->closed_) self->begin_read();
  });
}

}  // namespace levada::http
