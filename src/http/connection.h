// What: Connection, one client's socket: reads requests one after the other, sends each one's response in order.
// Owner: the Server's set while open; Responders keep the object (not the socket) alive.
// Thread: the I/O thread; only what stands under "Any thread" may be called elsewhere, guarded by mutex_.
// Invariant: at most one exchange is open; the next request is parsed once its predecessor's response is complete.
// States:
//   exchange: kNone ──dispatch()──> kWaiting ──start_stream()──> kStreaming ──end()──> kDone
//             kWaiting ──respond()──> kDone ──finish_exchange()──> kNone
//             kWaiting | kStreaming ──lose()──> kLost: the client went away, on_disconnect was called
//   socket:   open ──close_after_flush()──> sending the rest ──begin_linger()──> reading to the end ──close()──> closed
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/loop.h"
#include "http/output_queue.h"
#include "http/request_reader.h"
#include "http/site.h"
#include "http/text.h"

namespace levada::http {

// Bytes received and not yet parsed.
class InputBuffer {
 public:
  std::string_view view() const { return {bytes_.data() + begin_, end_ - begin_}; }
  void consume(std::size_t count) { begin_ += count; }
  // Free room behind the bytes. REQUIRES: fewer than `capacity` bytes are held.
  boost::asio::mutable_buffer room(std::size_t capacity);
  // `count` bytes were put into the room; bytes before it may have been consumed since.
  void commit(std::size_t count);

 private:
  std::vector<char> bytes_;
  std::size_t begin_ = 0, end_ = 0, room_at_ = 0;
  bool was_filled_ = false;
};

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

  // Any thread; the contracts stand at Responder. `exchange` is the number it was given: a stale one does nothing.
  void respond(std::uint64_t exchange, int status, std::string_view content_type, std::string body);
  void start_stream(std::uint64_t exchange, int status, std::string_view content_type);
  void write(std::uint64_t exchange, std::string bytes);
  void end(std::uint64_t exchange);
  void on_disconnect(std::uint64_t exchange, std::function<void()> callback);
  // The last Responder of the exchange is gone.
  void abandon(std::uint64_t exchange);
  bool client_gone() const { return gone_.load(); }
  std::size_t pending_bytes() const { return pending_bytes_.load(); }

 private:
  enum class Phase { kNone, kWaiting, kStreaming, kDone, kLost };

  // What other threads touch. Guarded by mutex_.
  struct Exchange {
    std::uint64_t number = 0;
    Phase phase = Phase::kNone;
    int status = 0;        // of the response, once begun
    bool is_head = false;  // HEAD: the body stays home
    bool is_http10 = false;
    bool keep_alive = false;
    bool overflowed = false;  // the client reads too slowly
    bool is_event_stream = false;
    bool at_event_end = false;  // an SSE comment may be put in here
    std::function<void()> on_gone;
  };

  bool is_open(std::uint64_t exchange, Phase phase) const;
  void put_response(int status, std::string_view content_type, std::string body, std::string_view extra_lines);
  void put_chunk(std::string bytes);
  void mark();

  void begin_read();
  void on_read(const boost::system::error_code& error, std::size_t bytes);
  void on_input_ended();
  void process_input();
  bool process_some();
  void dispatch(Request request, bool keep_alive);
  void call(const RouteAnswer& answer, Request request);
  void refuse(int status, std::string message);
  void pump();
  void finish_exchange();
  void flush();
  void close_after_flush();
  void begin_linger();
  void lose();
  void close();
  // A half-closed client looks like one that left. Sends something harmless: who left answers it with a reset.
  void probe();
  void watch_for_loss();

  const std::shared_ptr<Loop> loop_;  // shared: see Loop; before the socket, whose end still needs it
  boost::asio::ip::tcp::socket socket_;
  Site& site_;
  const std::size_t max_pending_bytes_;

  mutable std::mutex mutex_;
  Exchange exchange_;   // guarded by mutex_
  OutputQueue outbox_;  // guarded by mutex_
  std::atomic<bool> marked_{false};
  std::atomic<bool> gone_{false};
  std::atomic<std::size_t> pending_bytes_{0};

  // The I/O thread's own.
  OutputQueue sending_;
  InputBuffer input_;
  std::optional<RequestReader> reader_;  // a request is being read
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
