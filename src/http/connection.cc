#include "http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "base/log.h"
#include "http/responder_state.h"

namespace levada::http {
namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t kFirstInputBytes = 4096;
constexpr std::size_t kBodyInputBytes = 64u << 10;
constexpr std::size_t kInputSlackBytes = 4096;  // beyond the header limit, so that the limit is seen to be passed
constexpr std::chrono::seconds kLinger{2};
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

asio::mutable_buffer InputBuffer::room(std::size_t capacity) {
  std::copy(bytes_.begin() + static_cast<long>(begin_), bytes_.begin() + static_cast<long>(end_), bytes_.begin());
  end_ -= begin_;
  begin_ = 0;
  // Doubles each time it was filled, so that thousands of idle connections cost little and long bodies few reads.
  if (bytes_.empty() || was_filled_) bytes_.resize(std::clamp(bytes_.size() * 2, kFirstInputBytes, capacity));
  was_filled_ = false;
  room_at_ = end_;
  return asio::buffer(bytes_.data() + end_, bytes_.size() - end_);
}

void InputBuffer::commit(std::size_t count) {
  if (begin_ == end_) begin_ = room_at_;  // all that stood before the room was consumed meanwhile
  end_ = room_at_ + count;
  was_filled_ = end_ == bytes_.size();
}

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<Loop> loop, Site& site)
    : loop_(std::move(loop)),
      socket_(std::move(socket)),
      site_(site),
      max_pending_bytes_(site.options().max_pending_bytes),
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
    process_input();
  }
  begin_read();
}

void Connection::on_input_ended() {
  input_ended_ = true;
  if (lingering_) return close();
  if (handling_) {
    probe();
    return watch_for_loss();
  }
  process_input();
}

void Connection::process_input() {
  while (!handling_ && !closing_ && !closed_ && process_some()) {
  }
  if (closed_) return;
  flush();
  if (input_ended_ && !handling_ && !closing_ && !closed_) {
    if (reader_ && reader_->started()) return refuse(400, "the request ended early");
    close_after_flush();
  }
}

// One step of the reader; false when it waits for more bytes or for the client to take what was answered.
bool Connection::process_some() {
  if (input_.view().empty() || pending_bytes_ > max_pending_bytes_) return false;
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
    case RequestReader::State::kHeaderDone:
      if (!reader_->expects_continue() || !input_.view().empty()) return true;
      // Who asks first is told at once when the body would be in vain.
      if (site_.look_up(reader_->request().method, reader_->request().path).handler == nullptr) {
        dispatch(std::move(reader_->request()), false);
        return true;
      }
      sending_.add(kContinue);
      pending_bytes_ += kContinue.size();
      return true;
    case RequestReader::State::kDone: dispatch(std::move(reader_->request()), reader_->keep_alive()); return true;
  }
  return false;
}

// ---- Exchanges ----

void Connection::dispatch(Request request, bool keep_alive) {
  const RouteAnswer answer = site_.look_up(request.method, request.path);
  answer.requests->add();
  {
    std::lock_guard lock(mutex_);
    const std::uint64_t number = exchange_.number + 1;
    exchange_ = {};
    exchange_.number = number;
    exchange_.phase = Phase::kWaiting;
    exchange_.is_head = request.method == "HEAD";
    exchange_.is_http10 = reader_->is_http10();
    exchange_.keep_alive = keep_alive && !draining_;
  }
  handling_ = true;
  // No turn needs to be posted for what the handler answers at once: pump() below takes it.
  marked_ = true;
  call(answer, std::move(request));
  marked_ = false;
  pump();
}

void Connection::call(const RouteAnswer& answer, Request request) {
  if (answer.handler == nullptr) {
    std::lock_guard lock(mutex_);
    const bool has_body = !answer.message.empty();
    put_response(answer.status, has_body ? "application/json" : "",
                 has_body ? error_body(answer.status, answer.message) : "", answer.extra_lines);
    return;
  }
  Responder responder;
  responder.state_ = std::make_shared<Responder::State>(shared_from_this(), exchange_.number);
  try {
    (*answer.handler)(std::move(request), std::move(responder));
    return;
  } catch (const std::exception& error) {
    LEVADA_LOG_ERROR("http: a handler threw: ", error.what());
  } catch (...) {
    LEVADA_LOG_ERROR("http: a handler threw something that is no exception");
  }
  abandon(exchange_.number);
}

void Connection::refuse(int status, std::string message) {
  {
    std::lock_guard lock(mutex_);
    exchange_ = {.number = exchange_.number + 1, .phase = Phase::kWaiting};
    put_response(status, "application/json", error_body(status, message), {});
  }
  handling_ = true;
  pump();
}

// Moves what was answered to the sending queue; process_input() or on_turn() flush it, so that the answers to several
// pipelined requests leave together.
void Connection::pump() {
  bool overflowed, done;
  {
    std::lock_guard lock(mutex_);
    overflowed = exchange_.overflowed;
    done = exchange_.phase == Phase::kDone;
    sending_.take(outbox_);
  }
  if (overflowed) return lose();
  if (done && handling_) finish_exchange();
}

void Connection::finish_exchange() {
  handling_ = false;
  reader_.reset();
  since_ = steady_clock::now();
  std::function<void()> callback;  // may hold a Responder, whose end takes the lock: destroyed outside it
  bool keep_alive;
  {
    std::lock_guard lock(mutex_);
    site_.count_response(exchange_.status);
    keep_alive = exchange_.keep_alive;
    exchange_.phase = Phase::kNone;
    callback.swap(exchange_.on_gone);
  }
  if (!keep_alive) close_after_flush();
}

void Connection::on_turn() {
  marked_ = false;
  if (closed_) {
    // A callback that came after the client had gone is called now.
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex_);
      if (exchange_.phase == Phase::kLost) callback = std::exchange(exchange_.on_gone, nullptr);
    }
    if (callback) run_guarded(callback);
    return;
  }
  pump();
  if (closed_) return;
  if (handling_) return flush();
  process_input();
  begin_read();
}

// ---- Sending and closing ----

void Connection::flush() {
  if (closed_ || waiting_writable_) return;
  while (!sending_.empty()) {
    const long sent = sending_.send(socket_.native_handle());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      waiting_writable_ = true;
      last_progress_ = steady_clock::now();
      socket_.async_wait(asio::socket_base::wait_write, [self = shared_from_this()](const error_code& error) {
        self->waiting_writable_ = false;
        if (self->closed_) return;
        self->flush();
        // Requests that waited for the client to take its answers may go on.
        if (!self->closed_ && !self->handling_ && !self->closing_) self->process_input();
        if (!self->closed_) self->begin_read();
      });
      return;
    }
    if (sent < 0) return lose();
    pending_bytes_ -= static_cast<std::size_t>(sent);
    last_progress_ = steady_clock::now();
  }
  if (closing_ && !lingering_) begin_linger();
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
  std::function<void()> callback, unneeded;  // destroyed outside the lock: they may hold a Responder
  {
    std::lock_guard lock(mutex_);
    if (exchange_.phase == Phase::kWaiting || exchange_.phase == Phase::kStreaming) {
      // 499: nobody was there to receive a status.
      if (exchange_.phase == Phase::kWaiting) exchange_.status = 499;
      site_.count_response(exchange_.status);
      exchange_.phase = Phase::kLost;
      callback = std::exchange(exchange_.on_gone, nullptr);
    } else if (exchange_.phase == Phase::kDone) {
      // Complete, though the client didn't take it: nobody is told, and what the callback holds is let go.
      site_.count_response(exchange_.status);
      exchange_.phase = Phase::kNone;
      unneeded.swap(exchange_.on_gone);
    }
    outbox_.clear();
    gone_ = true;
  }
  close();
  if (callback) run_guarded(callback);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  pending_bytes_ = 0;
  sending_.clear();
  error_code ignored;
  socket_.close(ignored);
  site_.on_closed(*this);
}

void Connection::probe() {
  {
    std::lock_guard lock(mutex_);
    sending_.take(outbox_);
    const std::size_t before = sending_.size();
    if (exchange_.phase == Phase::kWaiting && !exchange_.is_http10) {
      sending_.add(kContinue);
    } else if (exchange_.phase == Phase::kStreaming && exchange_.is_event_stream && exchange_.at_event_end) {
      append_chunk(sending_.tail(), ":\n\n");
    }
    pending_bytes_ += sending_.size() - before;
  }
  flush();
}

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

// ---- Time and stopping ----

void Connection::on_tick(TimePoint now) {
  if (closed_) return;
  const ServerOptions& options = site_.options();
  if (lingering_) {
    if (now - since_ > kLinger) close();
    return;
  }
  if (!sending_.empty() && now - last_progress_ > options.read_timeout) return lose();
  if (handling_) {
    if (input_ended_) probe();
    return;
  }
  if (reader_ && reader_->started()) {
    if (now - since_ > options.read_timeout) refuse(408, "the request did not arrive in time");
  } else if (now - since_ > options.idle_timeout) {
    close_after_flush();
  }
}

void Connection::drain() {
  draining_ = true;
  {
    std::lock_guard lock(mutex_);
    exchange_.keep_alive = false;
  }
  if (!handling_ && !closing_) close_after_flush();
}

// ---- Any thread ----

bool Connection::is_open(std::uint64_t exchange, Phase phase) const {
  return exchange_.number == exchange && exchange_.phase == phase;
}

void Connection::mark() {
  if (!marked_.exchange(true)) loop_->mark(shared_from_this());
}

// REQUIRES: mutex_ held, phase kWaiting.
void Connection::put_response(int status, std::string_view content_type, std::string body,
                              std::string_view extra_lines) {
  const std::size_t before = outbox_.size();
  std::string& out = outbox_.tail();
  append_head(out, {.status = status,
                    .content_type = content_type,
                    .content_length = body.size(),
                    .keep_alive = exchange_.keep_alive,
                    .extra_lines = extra_lines,
                    .common_lines = site_.common_lines()});
  if (!exchange_.is_head && status != 204 && status != 304) outbox_.add(std::move(body));
  pending_bytes_ += outbox_.size() - before;
  exchange_.status = status;
  exchange_.phase = Phase::kDone;
}

void Connection::respond(std::uint64_t exchange, int status, std::string_view content_type, std::string body) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(exchange, Phase::kWaiting)) return;
    put_response(status, content_type, std::move(body), {});
  }
  mark();
}

void Connection::start_stream(std::uint64_t exchange, int status, std::string_view content_type) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(exchange, Phase::kWaiting)) return;
    if (exchange_.is_http10) exchange_.keep_alive = false;  // the end of the body is the end of the connection
    const std::size_t before = outbox_.size();
    append_head(outbox_.tail(), {.status = status,
                                 .content_type = content_type,
                                 .framing = exchange_.is_http10 ? BodyFraming::kUntilClose : BodyFraming::kChunked,
                                 .keep_alive = exchange_.keep_alive,
                                 .common_lines = site_.common_lines()});
    pending_bytes_ += outbox_.size() - before;
    exchange_.status = status;
    exchange_.is_event_stream =
        content_type.starts_with("text/event-stream") && !exchange_.is_http10 && !exchange_.is_head;
    exchange_.at_event_end = true;
    exchange_.phase = Phase::kStreaming;
  }
  mark();
}

// REQUIRES: mutex_ held, phase kStreaming.
void Connection::put_chunk(std::string bytes) {
  exchange_.at_event_end = bytes.ends_with("\n\n");
  if (exchange_.is_http10) {
    outbox_.add(std::move(bytes));
  } else {
    append_chunk(outbox_.tail(), bytes);
  }
}

void Connection::write(std::uint64_t exchange, std::string bytes) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(exchange, Phase::kStreaming) || exchange_.is_head || exchange_.overflowed || bytes.empty()) return;
    const std::size_t before = outbox_.size();
    put_chunk(std::move(bytes));
    pending_bytes_ += outbox_.size() - before;
    if (pending_bytes_ > max_pending_bytes_) {
      exchange_.overflowed = true;
      outbox_.clear();
    }
  }
  mark();
}

void Connection::end(std::uint64_t exchange) {
  {
    std::lock_guard lock(mutex_);
    if (!is_open(exchange, Phase::kStreaming)) return;
    if (!exchange_.is_http10 && !exchange_.is_head) {
      outbox_.add(kLastChunk);
      pending_bytes_ += kLastChunk.size();
    }
    exchange_.phase = Phase::kDone;
  }
  mark();
}

void Connection::on_disconnect(std::uint64_t exchange, std::function<void()> callback) {
  bool lost;
  {
    std::lock_guard lock(mutex_);
    lost = is_open(exchange, Phase::kLost);
    if (!lost && !is_open(exchange, Phase::kWaiting) && !is_open(exchange, Phase::kStreaming)) return;
    callback.swap(exchange_.on_gone);  // the one it replaces is destroyed outside the lock
  }
  if (lost) mark();
}

void Connection::abandon(std::uint64_t exchange) {
  {
    std::lock_guard lock(mutex_);
    if (is_open(exchange, Phase::kWaiting)) {
      put_response(500, "application/json", error_body(500, "the server gave no answer to this request"), {});
    } else if (is_open(exchange, Phase::kStreaming)) {
      // Without its last chunk the client can tell that the body is incomplete.
      exchange_.keep_alive = false;
      exchange_.phase = Phase::kDone;
    } else {
      return;
    }
  }
  mark();
}

}  // namespace levada::http
