// What: Mailbox<T>, the one way threads talk: many senders, one receiver, order per sender kept.
// Owner: the receiver; senders hold a reference that must not outlive it.
// Thread: push() from any; the take functions from the receiver's thread only.
// Invariant: after close() nothing is accepted, and what was accepted before is still delivered.
// Shutdown: close(), then drain until take() answers false.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace levada {

template <class T>
class Mailbox {
 public:
  // False if the mailbox is closed: the message was not accepted.
  bool push(T message) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
    return true;
  }

  // Appends everything that has arrived to `out` without waiting; returns how many.
  std::size_t try_take(std::vector<T>& out) {
    std::lock_guard lock(mutex_);
    return move_to(out);
  }

  // Waits until something arrives, the mailbox closes or the timeout passes. False once closed and empty.
  bool take(std::vector<T>& out, std::chrono::microseconds timeout = std::chrono::hours(1)) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [&] { return closed_ || !messages_.empty(); });
    move_to(out);
    return !closed_ || !out.empty();
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

 private:
  std::size_t move_to(std::vector<T>& out) {
    const std::size_t count = messages_.size();
    for (T& message : messages_) out.push_back(std::move(message));
    messages_.clear();
    return count;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<T> messages_;
  bool closed_ = false;
};

}  // namespace levada
