// What: OutputQueue, the bytes a connection still has to send: many small writes leave in one system call.
// Owner: one Connection, twice: what other threads filled, and what the I/O thread is sending.
// Thread: whoever holds the owner's lock, or the I/O thread.
// Invariant: bytes leave in the order they were added; size() counts those not yet sent.
// Small pieces are copied together, large ones are moved and sent from where they are (sendmsg).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace levada::http {

class OutputQueue {
 public:
  // Where small text (heads, chunk sizes) may be appended directly.
  std::string& tail();
  void add(std::string bytes);
  void add(std::string_view bytes) { tail() += bytes; }

  std::size_t size() const;
  bool empty() const { return segments_.empty(); }
  void clear();
  // Moves everything of `other` behind what is here.
  void take(OutputQueue& other);

  // One non-blocking send. Returns the bytes sent, or -1 with errno set (EAGAIN when the socket is full).
  // REQUIRES: not empty.
  long send(int socket);

 private:
  void drop_sent(std::size_t bytes);

  std::vector<std::string> segments_;  // the first `first_` are sent
  std::size_t first_ = 0;
  std::size_t offset_ = 0;  // sent bytes of segments_[first_]
};

}  // namespace levada::http
