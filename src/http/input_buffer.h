// What: InputBuffer, bytes received on a connection and not yet parsed.
// Owner: one Connection.
// Thread: the I/O thread.
// Invariant: bytes are seen in the order they came; memory grows with what is received, not with what is announced.
// A read fills room() and is made known by commit(); between the two, bytes held before it may be consumed.
#pragma once

#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <string_view>
#include <vector>

namespace levada::http {

class InputBuffer {
 public:
  std::string_view view() const { return {bytes_.data() + begin_, end_ - begin_}; }
  void consume(std::size_t count) { begin_ += count; }
  // Free room behind the bytes. REQUIRES: fewer than `capacity` bytes are held.
  boost::asio::mutable_buffer room(std::size_t capacity);
  // `count` bytes were put into the room.
  void commit(std::size_t count);
  // Gives memory beyond the first few KiB back if nothing is held. REQUIRES: no read into room() is under way.
  void shrink();

 private:
  std::vector<char> bytes_;
  std::size_t begin_ = 0, end_ = 0, room_at_ = 0;
  bool was_filled_ = false;
};

}  // namespace levada::http
