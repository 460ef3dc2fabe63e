#include "http/input_buffer.h"

#include <algorithm>

namespace levada::http {
namespace {

constexpr std::size_t kFirstBytes = 4096;

}  // namespace

boost::asio::mutable_buffer InputBuffer::room(std::size_t capacity) {
  std::copy(bytes_.begin() + static_cast<long>(begin_), bytes_.begin() + static_cast<long>(end_), bytes_.begin());
  end_ -= begin_;
  begin_ = 0;
  // Doubles each time it was filled, so that thousands of idle connections cost little and long bodies few reads.
  if (bytes_.empty() || was_filled_) bytes_.resize(std::clamp(bytes_.size() * 2, kFirstBytes, capacity));
  was_filled_ = false;
  room_at_ = end_;
  return boost::asio::buffer(bytes_.data() + end_, bytes_.size() - end_);
}

void InputBuffer::commit(std::size_t count) {
  if (begin_ == end_) begin_ = room_at_;  // all that stood before the room was consumed meanwhile
  end_ = room_at_ + count;
  was_filled_ = end_ == bytes_.size();
}

void InputBuffer::shrink() {
  if (begin_ != end_ || bytes_.size() <= kFirstBytes) return;
  bytes_ = std::vector<char>(kFirstBytes);
  begin_ = end_ = 0;
  was_filled_ = false;
}

}  // namespace levada::http
