// What: Exchange, the half of a connection that handlers touch: the answer to its present request.
// Owner: one Connection, which reuses it for each of its requests; Responders hold it through the connection.
// Thread: any, guarded by mutex_; what stands under "I/O thread" only there.
// Invariant: callers name the exchange by its number, so that a Responder of an earlier request does nothing.
// States:
//   kNone ──begin()──> kWaiting ──start_stream()──> kStreaming ──end()──> kDone
//   kWaiting ──respond() | answer()──> kDone ──finish()──> kNone
//   kWaiting | kStreaming ──lose()──> kLost: the client went away before the answer was complete
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "http/output_queue.h"

namespace levada::http {

class Exchange {
 public:
  // What the request laid down for its response.
  struct Terms {
    bool is_head = false;  // HEAD: the body stays home
    bool is_http10 = false;
    bool keep_alive = false;
    std::string_view common_lines;  // header lines of the response's head; outlive the exchange
  };
  struct Taken {
    bool complete = false;    // nothing follows: finish() is due
    bool overflowed = false;  // the client reads too slowly: lose() is due
  };
  // How an exchange ended. The callback may hold a Responder: it must be destroyed without a lock held.
  struct Ended {
    int status = 0;  // to be counted; 0: nothing was open
    bool keep_alive = false;
    std::function<void()> on_gone;
    bool was_lost = false;  // on_gone is to be called
  };

  // `wake` makes the I/O thread take() at the end of its present or next turn.
  Exchange(std::size_t max_pending_bytes, std::function<void()> wake)
      : max_pending_bytes_(max_pending_bytes), wake_(std::move(wake)) {}

  // The contracts stand at Responder.
  void respond(std::uint64_t number, int status, std::string_view content_type, std::string body);
  void start_stream(std::uint64_t number, int status, std::string_view content_type);
  void write(std::uint64_t number, std::string bytes);
  void end(std::uint64_t number);
  void on_disconnect(std::uint64_t number, std::function<void()> callback);
  bool client_gone() const { return gone_.load(); }
  std::size_t pending_bytes() const { return pending_bytes_.load(); }
  // The client is behind: no further request of its should be begun.
  bool is_full() const { return pending_bytes_.load() > max_pending_bytes_; }
  // The last Responder of the exchange is gone.
  void abandon(std::uint64_t number);

  // ---- I/O thread ----

  // Opens the next exchange and returns its number. No wake is asked for what is put in before take().
  std::uint64_t begin(const Terms& terms);
  // The server's own answer to the request just begun.
  void answer(int status, std::string_view content_type, std::string body, std::string_view extra_lines);
  // Moves what was put in since the last time behind `sending`.
  Taken take(OutputQueue& sending);
  // REQUIRES: take() said complete.
  Ended finish();
  // The client is gone, for this exchange and all that might follow.
  Ended lose();
  // A callback set after lose(); null if there is none.
  std::function<void()> take_late_callback();
  // The connection ends with the present response.
  void forbid_keep_alive();
  // Keep pending_bytes() true to what the connection queues and sends by itself.
  void count_queued(std::size_t bytes) { pending_bytes_ += bytes; }
  void count_sent(std::size_t bytes) { pending_bytes_ -= bytes; }

 private:
  enum class Phase { kNone, kWaiting, kStreaming, kDone, kLost };

  bool is_open(std::uint64_t number, Phase phase) const;
  void put_response(int status, std::string_view content_type, std::string body, std::string_view extra_lines);
  void put_chunk(std::string bytes);
  void wake_once();

  const std::size_t max_pending_bytes_;
  const std::function<void()> wake_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::uint64_t number_ = 0;
  Phase phase_ = Phase::kNone;
  Terms terms_;
  int status_ = 0;  // of the response, once begun
  bool overflowed_ = false;
  std::function<void()> on_gone_;
  OutputQueue outbox_;

  std::atomic<bool> woken_{false};
  std::atomic<bool> gone_{false};
  std::atomic<std::size_t> pending_bytes_{0};
};

}  // namespace levada::http
