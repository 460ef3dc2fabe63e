#include "http/output_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace levada::http {
namespace {

constexpr std::size_t kCopiedBelow = 4096;  // cheaper to copy than to spend an iovec and an allocation on
constexpr std::size_t kSegmentBytes = 64u << 10;
constexpr std::size_t kMaxVectors = 64;

}  // namespace

std::string& OutputQueue::tail() {
  if (segments_.empty() || segments_.back().size() >= kSegmentBytes) segments_.emplace_back();
  return segments_.back();
}

void OutputQueue::add(std::string bytes) {
  if (bytes.size() < kCopiedBelow) {
    tail() += bytes;
  } else {
    segments_.push_back(std::move(bytes));
  }
}

std::size_t OutputQueue::size() const {
  std::size_t bytes = 0;
  for (std::size_t i = first_; i < segments_.size(); ++i) bytes += segments_[i].size();
  return bytes - offset_;
}

void OutputQueue::clear() {
  segments_.clear();
  first_ = offset_ = 0;
}

void OutputQueue::take(OutputQueue& other) {
  if (other.empty()) return;
  if (empty()) {
    std::swap(*this, other);
    return;
  }
  for (std::string& segment : other.segments_) add(std::move(segment));
  other.clear();
}

long OutputQueue::send(int socket) {
  LEVADA_CHECK(!empty(), "nothing to send");
  iovec vectors[kMaxVectors];
  const std::size_t count = std::min(segments_.size() - first_, kMaxVectors);
  for (std::size_t i = 0; i < count; ++i) {
    std::string& segment = segments_[first_ + i];
    const std::size_t sent = i == 0 ? offset_ : 0;
    vectors[i] = {segment.data() + sent, segment.size() - sent};
  }
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = count;
  // One piece, as of an event: the kernel need not read the list.
  const long sent = count == 1 ? ::send(socket, vectors[0].iov_base, vectors[0].iov_len, kFlags)
                               : ::sendmsg(socket, &message, kFlags);
  if (sent > 0) drop_sent(static_cast<std::size_t>(sent));
  return sent;
}

void OutputQueue::drop_sent(std::size_t bytes) {
  offset_ += bytes;
  while (first_ < segments_.size() && offset_ >= segments_[first_].size()) {
    offset_ -= segments_[first_].size();
    segments_[first_++] = {};
  }
  if (first_ == segments_.size()) clear();
}

}  // namespace levada::http
